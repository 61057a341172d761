"""Real logs held against their truth; and the harness that does so held to telling a lie."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.corpus.__main__ import FOLDERS, judged, logs
from benchmarks.corpus.disputes import DISPUTES, dispute
from benchmarks.corpus.reading import Check, same
from tests.loaded import loaded

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"
LOGS = logs(SHARED)

Compare = Callable[[dict[str, Any]], "subprocess.CompletedProcess[str]"]

needs_corpus = pytest.mark.skipif(
    not LOGS,
    reason=f"no logs in ../shared/{FOLDERS[0]}: third-party text is no part of the project",
)

#: Logs without one line of DeepSpeed or its family: an application's own lines only.
STRANGERS = {"51_ds4785_elastic_job_prefix_2023.log"}


@needs_corpus
@pytest.mark.parametrize("log", [p for p in LOGS if p.name not in STRANGERS], ids=lambda p: p.stem)
def test_a_real_log_says_what_its_truth_and_a_plain_search_say(log: Path) -> None:
    _, truths, searches = judged(log, loaded(log))
    wrong = [check for check in truths + searches if not check.ok and not dispute(log.name, check)]
    assert wrong == []


@needs_corpus
def test_each_dispute_is_still_one() -> None:
    disputed = {name for name, _, _ in DISPUTES}
    found = {
        (log.name.partition("_")[0], check.kind, check.what)
        for log in LOGS
        if log.name.partition("_")[0] in disputed
        for check in judged(log, loaded(log))[1]
        if not check.ok
    }
    assert set(DISPUTES) <= found


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    """Runs the harness on a sample log beside a truth file."""

    def run(truth: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "corpus"
        folder.mkdir()
        shutil.copy(ROOT / "sample_logs" / "deepspeed_pipeline_2023.log", folder / "a.log")
        (folder / "a.truth.json").write_text(json.dumps(truth))
        command = [sys.executable, "-m", "benchmarks.corpus", str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)

    return run


TRUTH = {"n": 9, "first": {"step": 200, "loss": 1.9796}, "last": {"step": 280, "loss": 2.0265}}


def test_a_log_that_says_what_the_truth_says_passes(compare: Compare) -> None:
    done = compare({"framework": "deepspeed", "pipe_lines": TRUTH})
    assert done.returncode == 0, done.stdout
    assert "9/9" in done.stdout
    assert "DIFF" not in done.stdout


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"pipe_lines": TRUTH | {"n": 10}}, "n: found 9, expected 10"),
        ({"pipe_lines": TRUTH | {"last": {"step": 280, "loss": 2.03}}}, "last.loss: found 2.0265"),
        ({"framework": "gpt-neox"}, "found 'deepspeed', expected 'gpt-neox'"),
        ({"oom": True}, "found False, expected True"),
        ({"colour_of_the_rack": "grey"}, "is held against nothing"),
    ],
    ids=["count", "value", "framework", "oom", "unknown key"],
)
def test_a_truth_that_differs_is_told_and_fails(
    compare: Compare, lie: dict[str, Any], said: str
) -> None:
    done = compare(lie)
    assert done.returncode == 1
    assert "DIFF" in done.stdout
    assert said in done.stdout


def test_a_folder_without_logs_fails(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.corpus", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1
    assert "no logs" in done.stderr


@pytest.mark.parametrize(
    ("expected", "found", "equal"),
    [
        (1.5, 1.5000001, True),
        (1.5, 1.51, False),
        (None, None, True),
        (None, 0.0, False),
        (0.0, None, False),
        ([1, 2], [1, 2], True),
        ([1, 2], [1, 2, 3], False),
        (True, True, True),
    ],
)
def test_numbers_are_equal_as_printed_and_nothing_equals_only_nothing(
    expected: object, found: object, equal: bool
) -> None:
    assert same(expected, found) is equal
    assert Check("kind", "what", expected, found).ok is equal
