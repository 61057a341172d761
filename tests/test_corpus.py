"""Real logs held against their truth; and the harness that does so held to telling a lie."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
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

Compare = Callable[[Mapping[str, dict[str, Any]]], "subprocess.CompletedProcess[str]"]

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
    """Runs the harness on copies of a sample log, each beside a truth file and named as that is."""

    def run(truths: Mapping[str, dict[str, Any]]) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "corpus"
        folder.mkdir()
        for name, truth in truths.items():
            shutil.copy(
                ROOT / "sample_logs" / "deepspeed_pipeline_2023.log", folder / f"{name}.log"
            )
            (folder / f"{name}.truth.json").write_text(json.dumps(truth))
        command = [sys.executable, "-m", "benchmarks.corpus", str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)

    return run


TRUTH = {"n": 9, "first": {"step": 200, "loss": 1.9796}, "last": {"step": 280, "loss": 2.0265}}


def test_a_log_that_says_what_the_truth_says_passes(compare: Compare) -> None:
    done = compare({"a": {"framework": "deepspeed", "pipe_lines": TRUTH}})
    assert done.returncode == 0, done.stdout
    assert "9/9" in done.stdout
    assert "DIFF" not in done.stdout


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "count": ({"pipe_lines": TRUTH | {"n": 10}}, "n: found 9, expected 10"),
    "value": (
        {"pipe_lines": TRUTH | {"last": {"step": 280, "loss": 2.03}}},
        "last.loss: found 2.0265",
    ),
    "framework": ({"framework": "gpt-neox"}, "found 'deepspeed', expected 'gpt-neox'"),
    "oom": ({"oom": True}, "found False, expected True"),
    "unknown_key": ({"colour_of_the_rack": "grey"}, "is held against nothing"),
}


def test_each_truth_that_differs_is_told_and_counted_as_what_fails(compare: Compare) -> None:
    """All of them in one go: of each log exactly one thing differs."""
    done = compare({name: lie for name, (lie, _) in LIES.items()})
    told = dict(re.findall(r"^(\w+)\.log  ((?:.*\n {4})*.*)", done.stdout, re.MULTILINE))
    assert told.keys() == LIES.keys()
    for name, (_, said) in LIES.items():
        assert told[name].count("DIFF") == 1, told[name]
        assert said in told[name]
    assert f" {len(LIES)} differ\n" in done.stdout
    assert done.returncode == 1


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
