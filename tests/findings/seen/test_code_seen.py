"""Code that was seen to run where no phase tells what runs is what a report names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dsprof import load
from dsprof.events import Severity
from dsprof.findings.facts import Facts
from dsprof.findings.seen.places import place_of
from dsprof.recording import Unit, Writer
from dsprof.run import Run
from tests.findings.plants import alone, one, words_of
from tests.recording.recorded import CLASSES, MS, header, record_pauses

SCORE = "score (./train.py:30) < <module> (./train.py:99)"
LOG = "log (./train.py:50) < <module> (./train.py:99)"
READ = "Images.__getitem__ (/data/images.py:12) < fetch (torch/utils/data/_utils/fetch.py)"


def test_time_that_no_timer_explains_is_that_of_the_code_that_was_seen_there(
    tmp_path: Path,
) -> None:
    looks = [{"step/looks_after": (60, SCORE), "backward/looks_after": (900, LOG)}]
    found = one(load(record_pauses(tmp_path, {"step": 38}, looks=looks)), "unaccounted-time")
    assert found.severity is Severity.CRITICAL
    assert found.title == (
        "50 % of a step is explained by no timer, all of that between step and the next data, "
        "mostly in score (train.py:30)"
    )
    assert "At all 60 looks the training thread was in score (./train.py:30)." in found.summary
    assert "guessed" not in found.summary
    assert found.confidence == "medium"
    assert found.gain == pytest.approx((0.019, 0.038))
    assert [(advice.setting, advice.verb) for advice in found.advice] == [
        ("score (train.py:30)", "Change")
    ]
    assert found.evidence[-1].text == f"60 looks: {SCORE}"
    assert found.evidence[-1].line


def test_where_no_code_was_seen_at_most_looks_nothing_of_it_is_said(tmp_path: Path) -> None:
    few = [{"step/looks_after": (3, SCORE)}]
    found = one(load(record_pauses(tmp_path, {"step": 38}, looks=few)), "unaccounted-time")
    assert "score" not in words_of(found)
    assert found.advice[0].setting == "py-spy record"
    assert (found.confidence, found.gain) == ("medium", None)


def test_the_code_of_a_late_rank_is_that_of_its_own_looks(tmp_path: Path) -> None:
    looks = [
        {"backward/looks_after": (2, LOG), "forward/looks": (60, "")},
        {"backward/looks_after": (40, SCORE), "forward/looks": (20, "")},
    ]
    pauses = {"backward": 1}, {"backward": 40}
    found = one(load(record_pauses(tmp_path, *pauses, looks=looks)), "straggler-rank")
    assert found.ranks == (1,)
    assert found.title.endswith(" of each step: rank 1 is mostly in score (train.py:30)")
    assert "At all 40 looks the training thread was in score" in found.summary
    assert found.evidence[-1].text.startswith("40 looks: score")
    assert "score (train.py:30)" in [advice.setting for advice in found.advice]
    assert "log" not in words_of(found)


@pytest.mark.parametrize(("meeting", "is_named"), [(1, True), (30, False)])
def test_code_behind_a_call_is_named_unless_the_call_itself_takes_much_of_that_time(
    tmp_path: Path, meeting: int, *, is_named: bool
) -> None:
    """A script that averages its loss behind each step: looks are told by the phase before."""
    looks = [{"forward/looks": (60, "")}, {"step/looks_after": (40, SCORE)}]
    pauses = {"backward": 40}, {"step": 40}
    run = load(record_pauses(tmp_path, *pauses, meeting=meeting, looks=looks))
    found = place_of(Facts(run), (1,))
    assert found is not None
    assert found.words == "between all_reduce and the next data"
    assert found.seconds == pytest.approx(0.04)
    assert (found.code is not None) == is_named


def test_others_that_wait_in_a_call_behind_the_same_phase_do_not_run_that_code(
    tmp_path: Path,
) -> None:
    """As rank 0 does in a barrier while rank 1 scores, both behind the step."""
    waits = "all_reduce (torch/distributed/distributed_c10d.py) < main (./train.py:40)"
    looks = [{"step/looks_after": (40, waits)}, {"step/looks_after": (40, SCORE)}]
    found = one(load(record_pauses(tmp_path, {"step": 1}, {"step": 40}, looks=looks)),
                "straggler-rank")  # fmt: skip
    assert found.ranks == (1,)
    assert found.advice[0].setting == "score (train.py:30)"


def test_of_a_late_rank_no_code_is_named_where_the_others_spend_much_time_too(
    tmp_path: Path,
) -> None:
    looks = [{"step/looks_after": (20, SCORE)}, {"step/looks_after": (40, SCORE)}]
    found = one(load(record_pauses(tmp_path, {"step": 20}, {"step": 40}, looks=looks)),
                "straggler-rank")  # fmt: skip
    assert found.ranks == (1,)
    assert "score" not in words_of(found)


@pytest.mark.parametrize(("in_phases", "is_named"), [(60, True), (2_000, False)])
def test_on_a_gpu_code_is_named_where_the_host_spends_as_long_there_as_the_gpu_waits(
    tmp_path: Path, in_phases: int, *, is_named: bool
) -> None:
    """Else the GPU waits for what the host does in a phase, as to launch a forward."""
    looks = [{"step/looks_after": (60, SCORE), "forward/looks": (in_phases, "")}]
    run = load(record_pauses(tmp_path, {"step": 38}, looks=looks, phases_on="gpu"))
    found = alone(run, "unaccounted-time")
    assert found.title.startswith("50 % of a step is explained by no timer, all of that between")
    assert ("score" in words_of(found)) == is_named


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_is_named_unless_workers_read_it(tmp_path: Path, workers: int) -> None:
    lengths = {"data": 60, "forward": 10, "backward": 20, "step": 6}
    looks = [{"data/looks": (50, READ), "forward/looks": (90, ""), "data/looks_after": (9, LOG)}]
    run = load(record_pauses(tmp_path, {}, lengths=lengths, looks=looks, data_workers=workers))
    found = alone(run, "data-bound")
    named = "Images.__getitem__ (images.py:12)"
    assert (f", mostly in {named}" in found.title) == (not workers)
    assert (named in [advice.setting for advice in found.advice]) == (not workers)
    assert found.advice[0].setting == "DataLoader(num_workers=...)"


def test_the_data_set_of_the_rank_whose_batches_come_late_is_named(tmp_path: Path) -> None:
    """Rank 1 reads for 60 ms, and rank 0, which logs, waits for it."""
    for rank, (reads, stack) in enumerate(((2, LOG), (60, READ))):
        writer, at = Writer.create(tmp_path, header(rank, world=2)), MS
        data, forward = writer.name("data", 0, "data"), writer.name("forward", 0, "compute")
        for step in range(1, 41):
            began, works = at, at + reads * MS
            writer.span(data, at, works, step)
            writer.span(forward, works, works + 20 * MS, step)
            at = works + 20 * MS
            waits = (62 - reads) * MS
            meet, world = writer.name("all_reduce"), writer.name("world ranks 0-1")
            writer.collective(meet, world, at, at, waits, step, -1, 1 << 20, 1, step)
            at += waits
            writer.step(step, began, at, [0.0] * len(CLASSES))
        for phase, count, what in ((data, reads, writer.name(stack)), (forward, 60, 0)):
            seen = writer.name("looks", phase)
            writer.metric(seen, count, unit=int(Unit.COUNT), at_ns=at, text=what)
        writer.close()
    found = one(load(tmp_path), "straggler-rank")
    assert found.ranks == (1,)
    assert "Images.__getitem__ (images.py:12)" in [advice.setting for advice in found.advice]
    assert "log (" not in words_of(found)


def test_a_name_that_would_steer_a_terminal_or_fill_a_page_is_told_without_that(
    tmp_path: Path,
) -> None:
    looks = [{"step/looks_after": (60, f"f\x1b[31m{'x' * 900} ./a\x1b]0;b.py:3")}]
    found = one(load(record_pauses(tmp_path, {"step": 38}, looks=looks)), "unaccounted-time")
    assert len(found.title) < 300
    assert len(found.advice[0].setting) < 200


def paused(
    folder: Path,
    ms: Callable[[int], int],
    *looks: tuple[int, int, str],
    rank: int = 0,
    world: int = 1,
    waits: bool = False,
) -> Run:
    """80 steps of 36 ms, behind each a pause; `looks` behind these: at which step they are told,
    how many, and what stack. One that `waits` does so in a barrier, for as long.
    """
    writer, at = Writer.create(folder, header(rank, world=world)), MS
    began = at
    barrier = writer.name("barrier")
    update = writer.name("step", 0, "optimizer")
    for step in range(1, 81):
        for name, length in (("forward", 10), ("backward", 20)):
            writer.span(writer.name(name, 0, "compute"), at, at + length * MS, step)
            at += length * MS
        writer.span(update, at, at + 6 * MS, step)
        at += 6 * MS
        writer.step(step, began, at, [0.0] * len(CLASSES))
        began = at
        for told_at, count, stack in looks:
            if told_at == step:
                seen, what = writer.name("looks_after", update), writer.name(stack)
                writer.metric(seen, count, unit=int(Unit.COUNT), at_ns=at, text=what)
        if waits and ms(step):
            writer.collective(barrier, 0, at, at, ms(step) * MS, step + 1, size=0)
        at += ms(step) * MS
    writer.close()
    return load(folder)


def test_steps_that_stick_out_name_what_was_seen_to_run_in_them(tmp_path: Path) -> None:
    run = paused(tmp_path, lambda step: 300 * (step % 10 == 0), (80, 12, SCORE))
    found = one(run, "step-spikes")
    assert found.title.endswith(", mostly in score (train.py:30)")
    assert "of that lies between step and the next forward, mostly in score" in found.summary
    assert [advice.setting for advice in found.advice] == ["score (train.py:30)"]
    assert found.evidence[-1].text.startswith("12 looks: score")


def test_what_a_rank_runs_in_the_steps_it_is_late_in_is_named(tmp_path: Path) -> None:
    """As a rank that scores alone, while the other one waits in a barrier."""
    stand = "barrier (torch/distributed/distributed_c10d.py) < main (./train.py:40)"
    pauses = partial(paused, tmp_path, lambda step: 300 * (step % 10 == 0), world=2)
    pauses((80, 12, stand), rank=1, waits=True)
    found = one(pauses((80, 12, SCORE)), "step-spikes")
    assert found.ranks == (0,)
    assert found.title.endswith(": rank 0 is late in them, mostly in score (train.py:30)")
    assert "All of that lies between step and the next forward, mostly in score" in found.summary
    assert [advice.setting for advice in found.advice] == ["score (train.py:30)"]


def test_what_runs_behind_every_step_is_not_what_makes_some_longer(tmp_path: Path) -> None:
    """Behind each it logs for 50 ms, behind every tenth it scores for 300."""
    run = paused(tmp_path, lambda step: 50 + 300 * (step % 10 == 0), (80, 40, LOG), (80, 12, SCORE))
    found = one(run, "step-spikes")
    assert "(train.py" not in words_of(found)
    assert found.advice[-1].setting == "what happens at these steps"


def test_steps_that_became_longer_name_what_was_seen_since(tmp_path: Path) -> None:
    run = paused(tmp_path, lambda step: 40 * (step >= 40), (30, 30, LOG), (80, 30, SCORE))
    found = one(run, "slowdown")
    assert "mostly in score (train.py:30)" in found.summary
    assert "score (train.py:30)" in [advice.setting for advice in found.advice]
    assert "log" not in words_of(found)
    assert len({advice.setting for advice in found.advice}) == len(found.advice)


def test_what_is_told_at_the_end_of_a_longer_step_was_seen_in_it(tmp_path: Path) -> None:
    run = paused(tmp_path, lambda step: 9_000 * (step == 40), (41, 40, SCORE), (80, 9, LOG))
    assert one(run, "step-spikes").title.endswith(", mostly in score (train.py:30)")


def test_what_ran_in_the_first_step_alone_is_not_what_runs_in_the_others(tmp_path: Path) -> None:
    """Behind the first it compiles for 9 s, of which steps are told without."""
    compiles = (1, 45, "compile_loss (./train.py:2) < main (./train.py:90)")
    run = paused(tmp_path / "both", lambda _: 40, compiles, (80, 9, SCORE))
    assert "mostly in score" in one(run, "unaccounted-time").title
    alone_seen = paused(tmp_path / "alone", lambda _: 40, compiles)
    assert "compile_loss" not in words_of(one(alone_seen, "unaccounted-time"))
