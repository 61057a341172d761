"""The bench of planted faults: its table, its scores, and a few of its cases on real ranks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.truth import launch, page, rival, score
from benchmarks.truth.books import Books, overslept
from benchmarks.truth.cases import CASES, HEALTHY, TABLE, UNKNOWN, Case, Fault, Job, Right
from benchmarks.truth.score import Score, Truth
from dsprof.events import Severity
from dsprof.findings import RULES, Finding
from dsprof.run import load
from tests.hook.jobs_of import interpreter

CASE = Case("x", "rank 1 is late", Job("zero1"), Right(("straggler-rank",), 1, ("forward",)),
            Fault("forward", 0.02, 1))  # fmt: skip


def test_every_case_has_a_name_of_its_own_and_expects_a_rule_that_there_is() -> None:
    assert len(CASES) == len(TABLE)
    assert sum(case.healthy for case in TABLE) >= 10
    assert sum(not case.healthy for case in TABLE) >= 30
    rules = {*RULES, "healthy", *HEALTHY}
    assert {
        rule for case in TABLE for rule in (*case.right.rules, *(case.right.log or ()))
    } <= rules
    assert {rule for meant in rival.MEANING.values() for rule in meant} <= rules


def test_cases_share_a_launch_unless_they_end_their_process_or_leave_their_layout() -> None:
    together = launch.launches(TABLE)
    assert sorted(case.name for cases in together for case in cases) == sorted(CASES)
    for cases in together:
        assert len({case.launch for case in cases}) == 1
        assert len(cases) == 1 or cases[0].launch not in {"alone", "restarted"}
        assert len({case.job.kind == "pipe" for case in cases}) == 1


def test_a_fault_happens_at_its_steps_and_grows() -> None:
    fault = Fault("loop", 0.1, every=10, start=5, growth=0.01)
    assert [step for step in range(1, 30) if fault.at(step)] == [5, 15, 25]
    assert fault.delay(15) == pytest.approx(0.2)


def test_a_run_overslept_by_what_its_blocks_took_longer_than_they_mostly_do() -> None:
    book = Books(Fault(), 0)
    book.steps = [9.0] + [0.1] * 10
    for step in range(1, 12):
        book.device[step] = {1: 8.0, 5: 0.35}.get(step, 0.05)
    assert overslept(book) == pytest.approx(0.3)  # the first step warms up and does not count
    book.device.clear()
    assert overslept(book) == 0.0


def books(folder: Path, **more: Any) -> Path:
    """Two ranks, of which one was delayed by 20 ms in each step but the first."""
    for rank in range(2):
        told = {
            "steps": [1.0] + [0.1] * 10,
            "planted": [9.0] + [0.02 * rank] * 10,
            "device": [0.0] + [0.06] * 10,
            "skipped": 5,
            "twins": [[0.07] * 5, [0.08] * 5],
        }
        (folder / f"rank-{rank}.json").write_text(json.dumps(told | more))  # fmt: skip
    return folder


def test_the_size_of_a_loss_is_what_was_planted_on_its_rank(tmp_path: Path) -> None:
    truth = score.true_loss(CASE, books(tmp_path))
    assert truth is not None
    assert truth.seconds == pytest.approx(0.02)


def test_the_size_of_a_loss_against_its_twin_is_known_as_well_as_both_are(tmp_path: Path) -> None:
    case = Case("x", "", Job("ddp"), CASE.right, measure="twin")
    truth = score.true_loss(case, books(tmp_path))
    assert truth is not None
    assert truth.seconds == pytest.approx(0.025)
    assert truth.resolved
    truth = score.true_loss(case, books(tmp_path, twins=[[0.01, 0.2, 0.01, 0.2]]))
    assert truth is not None
    assert not truth.resolved


@pytest.mark.parametrize(
    ("rule", "ranks", "phase", "right"),
    [
        ("straggler-rank", (1,), "forward", True),
        ("straggler-rank", (0,), "forward", False),
        ("straggler-rank", (1,), "backward", False),
        ("communication-bound", (), None, False),
    ],
)
def test_a_verdict_needs_rule_rank_and_phase(
    rule: str, ranks: tuple[int, ...], phase: str | None, right: bool,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    said = Finding(rule, Severity.WARNING, "", "", None, 0.021, ranks, phase)
    monkeypatch.setattr(score, "load", lambda *_, **__: SimpleNamespace(findings=[said]))
    found = score.score(CASE, books(tmp_path), "recording")
    assert (found.right, found.sized) == (right, True if right else None)


def test_a_log_may_say_that_it_cannot_tell_where_that_is_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = Finding(UNKNOWN[0], Severity.INFO, "", "")
    monkeypatch.setattr(score, "load", lambda *_, **__: SimpleNamespace(findings=[unknown]))
    case = Case("x", "", CASE.job, Right(("data-bound",), log=UNKNOWN))
    assert score.score(case, tmp_path, "log").right
    assert not score.score(case, tmp_path, "recording").right


def test_tables_are_written_between_their_marks_and_nowhere_else(tmp_path: Path) -> None:
    document = tmp_path / "truth.md"
    document.write_text("# a\n<!-- summary -->\nold\n<!-- end -->\nb\n")
    found = Score(CASE, "recording", "straggler-rank", 1, "forward", True, True, 0.021,
                  Truth(0.02), ())  # fmt: skip
    page.write({"summary": page.summary([found], [])}, document)
    text = document.read_text()
    assert text.startswith("# a\n<!-- summary -->\n|")
    assert text.endswith("<!-- end -->\nb\n")
    assert "1 of 1 (100%)" in text
    assert "old" not in text


#: Stands for TraceML: "trains" the case that comes last on its command line, then sums up until
#: the next one has begun; `order` is what happened in what order.
_RIVAL = """#!{python}
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--args") + 1], sys.argv[-1])
def note(what):
    with open({order!r}, "a") as file:
        file.write(what + " " + folder.name + "\\n")
note("begins")
folder.mkdir(parents=True)
note("has trained")
for rank in range(2):
    (folder / f"rank-{{rank}}.json").write_text("{{}}")
begin = time.monotonic()
while "begins {last}" not in open({order!r}).read() and time.monotonic() - begin < 20:
    time.sleep(0.01)
note("is over")
"""


def test_the_rival_sums_up_while_the_next_launch_starts_and_no_two_train_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = (CASES[name] for name in ("healthy-ddp", "nan-ddp"))
    order, script = tmp_path / "order", tmp_path / "traceml"
    script.write_text(_RIVAL.format(python=sys.executable, order=str(order), last=last.name))
    script.chmod(0o755)
    monkeypatch.setenv("DSPROF_TORCH_PYTHON", str(tmp_path / "python"))
    rival.run([first, last], tmp_path / "out")
    told = order.read_text().splitlines()
    assert told[:3] == [f"begins {first.name}", f"has trained {first.name}", f"begins {last.name}"]
    assert {f"is over {case.name}" for case in (first, last)} <= set(told)


def test_planted_faults_are_found_on_real_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults so large that a busy machine does not hide them; `make truth` judges the rest."""
    monkeypatch.setenv("DSPROF_TORCH_PYTHON", interpreter())
    names = ("slow-forward-zero1-30ms", "slow-loader-zero1-40ms", "overflow-every-3")
    cases = [CASES[name] for name in names]
    launch.run(cases, tmp_path)
    for case in cases:
        said = {one.rule: one for one in load(tmp_path / case.name / "recording").findings}
        assert set(case.right.rules) & set(said), case.name
        truth = score.true_loss(case, tmp_path / case.name)
        assert truth is not None
        assert truth.seconds > 0.01
    blamed = load(tmp_path / names[0] / "recording").findings
    assert {one.ranks for one in blamed if one.rule == "straggler-rank"} == {(1,)}


def test_advice_is_held_against_what_following_it_gained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 100 ms a step to 80: the interval 15 to 24 ms holds it, its middle is 2.5 % off."""
    said = Finding("straggler-rank", Severity.WARNING, "", "", gain=(0.015, 0.024))
    monkeypatch.setattr(score, "load", lambda *_, **__: SimpleNamespace(findings=[said]))
    case = CASES["slow-forward-zero1-30ms"]
    told = score.advised(case, books(tmp_path, mended=[[0.08] * 5, [0.08] * 5]))
    assert told is not None
    assert told.gained.seconds == pytest.approx(0.02)
    assert told.inside
    assert told.off == pytest.approx(0.025)
    assert score.advised(case, books(tmp_path, mended=[])) is None


def test_more_micro_batches_are_compared_by_the_same_samples(tmp_path: Path) -> None:
    """A step of 2 micro-batches takes 100 ms, one of 8 takes 200: a quarter of that is 50."""
    told = score.advised(CASES["few-micro-batches-2"], books(tmp_path, mended=[[0.2] * 5]))
    assert told is not None
    assert told.gained.seconds == pytest.approx(0.05)
    assert not told.inside  # nothing was recorded, so nothing was predicted
