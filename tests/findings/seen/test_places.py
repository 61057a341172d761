"""Where the time lies that no phase covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof import load
from dsprof.findings.seen.places import Place, place_of
from dsprof.recording import THINNED, Writer
from dsprof.run import Run
from tests.findings.pipelines import pipeline
from tests.recording.recorded import LENGTHS, MS, header, record_pauses


def found(run: Run, ranks: tuple[int, ...] = (), inside: str = "") -> Place | None:
    return place_of(run.judged[0], ranks, inside)


def late_to_begin(folder: Path, *names: str) -> Path:
    """30 steps of these phases, 10 ms each, with 20 ms in front of the first one."""
    writer, at = Writer.create(folder, header(world=1)), MS
    for step in range(1, 31):
        began = at
        at += 20 * MS
        for name in names:
            writer.span(writer.name(name, 0, "compute"), at, at + 10 * MS, step)
            at += 10 * MS
        writer.step(step, began, at)
    writer.close()
    return folder


def test_most_of_the_time_lies_between_two_phases(tmp_path: Path) -> None:
    place = found(load(record_pauses(tmp_path, {"backward": 30, "forward": 1})))
    assert place is not None
    assert place.words == "between backward and step"
    assert place.much == "97 %"
    assert place.hint == (
        " Between backward and step, scripts clip, unscale or inspect gradients by hand."
    )
    (proof,) = place.proof
    assert proof.text.startswith("step ")
    assert ": 30.0 ms between backward and step" in proof.text
    assert proof.line


def test_what_follows_a_step_lies_before_the_next_one(tmp_path: Path) -> None:
    place = found(load(record_pauses(tmp_path, {"step": 30})))
    assert place is not None
    assert place.words == "between step and the next data"
    assert place.much == "all"
    assert "average weights" in place.hint


def test_a_step_that_begins_with_its_forward_may_wait_for_a_loader_that_is_not_pytorchs(
    tmp_path: Path,
) -> None:
    place = found(load(late_to_begin(tmp_path, "forward", "backward", "step")))
    assert place is not None
    assert place.words == "between step and the next forward"
    assert "load batches by other means than PyTorch's DataLoader" in place.hint


@pytest.mark.parametrize("stages", [2, 3])
def test_stages_that_begin_with_different_phases_pause_in_one_place(stages: int) -> None:
    place = found(pipeline((20,) * stages))
    assert place is not None
    assert (place.words, place.much) == (
        "between broadcast and the beginning of the next step",
        "all",
    )
    assert ": 20.0 ms between broadcast and the beginning of" in place.proof[0].text


@pytest.mark.parametrize("first", ["forward", "backward"])
def test_a_backward_that_no_forward_comes_before_tells_of_one_that_was_not_seen(
    tmp_path: Path, first: str
) -> None:
    """As where a script calls the module inside DeepSpeed's engine."""
    place = found(load(late_to_begin(tmp_path, first, "step")))
    assert place is not None
    assert place.words == f"between step and the next {first}"
    assert ("a forward ran that nothing recorded" in place.hint) == (first == "backward")


@pytest.mark.parametrize(("every", "words"), [(30, "step and the next data"), (4, "")])
def test_where_steps_end_in_several_ways_it_is_not_said_what_came_before(
    tmp_path: Path, every: int, words: str
) -> None:
    """Which of them came before the time is not known: it may be that behind the evaluations."""
    writer, at = Writer.create(tmp_path, header(world=1)), MS
    for step in range(1, 31):
        began = at
        at += 20 * MS
        for name in ("data", "step", "evaluation")[: 3 if step % every == 0 else 2]:
            writer.span(writer.name(name, 0, "other"), at, at + 10 * MS, step)
            at += 10 * MS
        writer.step(step, began, at)
    writer.close()
    place = found(load(tmp_path))
    assert place is not None
    assert place.words == (f"between {words}" if words else "before the next data")
    assert bool(place.hint) == bool(words)


def test_of_micro_batches_the_time_lies_before_each_forward(tmp_path: Path) -> None:
    """One follows the step, the others a backward."""
    writer, at = Writer.create(tmp_path, header(world=1)), MS
    for step in range(1, 31):
        began = at
        for name in ("forward", "backward", "forward", "backward", "step"):
            at += (20 if name == "forward" else 1) * MS
            writer.span(writer.name(name, 0, "compute"), at, at + 10 * MS, step)
            at += 10 * MS
        writer.step(step, began, at, micros=2)
    writer.close()
    place = found(load(tmp_path))
    assert place is not None
    assert (place.words, place.much) == ("before forward", "93 %")
    assert place.hint == " Before forward, scripts load and prepare batches."
    assert ": 20.0 ms before forward" in place.proof[0].text


def test_time_that_is_spread_has_no_place(tmp_path: Path) -> None:
    assert found(load(record_pauses(tmp_path, {"backward": 10, "forward": 10, "step": 10}))) is None


def test_of_late_ranks_only_what_they_need_beyond_the_others_counts(tmp_path: Path) -> None:
    run = load(record_pauses(tmp_path, {"step": 20, "backward": 12}, {"step": 20}))
    place = found(run, (0,))
    assert place is not None
    assert place.words == "between backward and step"
    every = found(run)
    assert every is not None
    assert every.words == "before the next data", "one ends with step, the other with a call"


def test_what_others_need_beyond_a_late_rank_does_not_count(tmp_path: Path) -> None:
    pauses = {"step": 2, "backward": 12}, {"step": 20}, {"step": 20}
    place = found(load(record_pauses(tmp_path, *pauses)), (0,))
    assert place is not None
    assert (place.words, place.share) == ("between backward and step", 1)


def test_a_recording_without_a_rank_is_left_out(tmp_path: Path) -> None:
    record_pauses(tmp_path, {"backward": 30})
    writer = Writer.create(tmp_path, {"host": "worker-1"})
    writer.span(writer.name("forward", 0, "compute"), MS, 2 * MS, 1)
    writer.step(1, MS, 3 * MS)
    writer.close()
    place = found(load(tmp_path))
    assert place is not None
    assert place.words == "between backward and step"


def test_a_phase_has_places_inside_too(tmp_path: Path) -> None:
    place = found(load(record_pauses(tmp_path, {}, inner=2)), inside="step")
    assert place is not None
    assert (place.words, place.much, place.hint) == ("after optimizer_step", "all", "")


@pytest.mark.parametrize("phases_on", ["gpu", "host"])
def test_on_a_gpu_the_place_is_one_of_its_stream(tmp_path: Path, phases_on: str) -> None:
    """The host that feeds it has other gaps."""
    run = load(record_pauses(tmp_path, {"backward": 30}, ahead=25, phases_on=phases_on))
    place = found(run)
    assert place is not None
    assert place.words == "between backward and step"
    assert ": 30.0 ms between" in place.proof[0].text


@pytest.mark.parametrize(
    ("begins", "words"),
    [
        (0, ["after forward", "after forward"]),
        (20, ["between step of engine 1 and forward", "between step of engine 0 and forward"]),
    ],
)
def test_what_lies_before_the_first_phase_of_an_engines_turn_is_its_own_time(
    tmp_path: Path, begins: int, words: list[str]
) -> None:
    """Two engines take turns; of each turn 20 ms lie before its phase, or behind it."""
    writer = Writer.create(tmp_path, header(world=1))
    forward, at = writer.name("forward", 0, "compute"), MS
    for step in range(1, 31):
        for engine in (0, 1):
            begin = at + begins * MS
            writer.span(forward, begin, begin + 10 * MS, step, engine=engine)
            writer.step(step, at, at + 30 * MS, engine=engine)
            at += 30 * MS
    writer.close()
    run = load(tmp_path)
    assert len(run.judged) == 2
    places = [place_of(facts) for facts in run.judged]
    assert [place.words for place in places if place] == words


def test_steps_of_a_turn_are_not_all_of_the_same_kind(tmp_path: Path) -> None:
    """Engine 1 makes two steps a turn: before the first of them lie 30 ms, before the second none.
    There are twice as many of them as are looked at.
    """
    writer, at = Writer.create(tmp_path, header(world=1)), MS
    forward = writer.name("forward", 0, "compute")
    for turn in range(40):
        for engine, step, pause in ((0, turn, 0), (1, 2 * turn, 30), (1, 2 * turn + 1, 0)):
            begin = at + pause * MS
            writer.span(forward, begin, begin + 10 * MS, step + 1, engine=engine)
            writer.step(step + 1, at, begin + 11 * MS, engine=engine)
            at = begin + 11 * MS
    writer.close()
    facts = next(one for one in load(tmp_path).judged if one.engine == 1)
    place = place_of(facts)
    assert place is not None
    assert place.words == "between step of engine 0 and forward"


def test_the_title_says_where_the_time_lies(tmp_path: Path) -> None:
    run = load(record_pauses(tmp_path, {"backward": 30}))
    (untimed,) = [one for one in run.findings if one.rule == "unaccounted-time"]
    assert untimed.title == (
        "44 % of a step is explained by no timer, all of that between backward and step"
    )
    assert untimed.advice[0].why == "shows which code runs between backward and step"
    assert untimed.evidence[0].text.endswith("longest of some steps")


def test_what_lies_inside_a_timer_is_no_part_of_what_lies_between_two(tmp_path: Path) -> None:
    lengths = LENGTHS | {"inspection": 20}
    run = load(record_pauses(tmp_path, {"inspection": 20, "backward": 1}, lengths=lengths))
    (untimed,) = [one for one in run.findings if one.rule == "unaccounted-time"]
    assert untimed.title == (
        "52 % of a step is explained by no timer, 49 % of that inside inspection, 49 % of that "
        "after inspection"
    )


def test_a_late_rank_loses_its_time_somewhere(tmp_path: Path) -> None:
    run = load(record_pauses(tmp_path, {"step": 5}, {"step": 5, "backward": 40}))
    (late,) = [one for one in run.findings if one.rule == "straggler-rank"]
    assert "It loses most between backward and step (40.0 ms per step, outside" in late.summary
    assert late.advice[0].to == "a minute of rank 1"
    assert late.advice[0].why == "shows which code runs between backward and step"


def test_what_is_slow_behind_the_optimizer_is_said_to_be_there(tmp_path: Path) -> None:
    run = load(record_pauses(tmp_path, {}, inner=2, lengths=LENGTHS | {"step": 60}))
    (slow,) = [one for one in run.findings if one.rule == "optimizer-bound"]
    assert slow.title == "65 % of a step is step(), most of it after optimizer_step"
    assert "58.0 ms lie outside the timers inside step(), all of that after" in slow.summary
    assert slow.advice[0].why == "shows which code runs after optimizer_step"


@pytest.mark.parametrize(
    ("inner", "before", "where"),
    [(2, 10, "after optimizer_step"), (20, 15, "in no inner timer"), (2, 30, "in no inner timer")],
)
def test_most_of_the_update_lies_behind_it_or_that_is_not_said(
    tmp_path: Path, inner: int, before: int, where: str
) -> None:
    lengths = LENGTHS | {"step": 60}
    run = load(record_pauses(tmp_path, {}, inner=inner, before=before, lengths=lengths))
    (slow,) = [one for one in run.findings if one.rule == "optimizer-bound"]
    assert slow.title.endswith(f"most of it {where}")
    assert ("83 % of that after optimizer_step" in slow.summary) == (where[:5] == "after")


@pytest.mark.parametrize(
    ("pauses", "said"),
    [
        ({"backward": 30, "forward": 10}, "between backward and step (30.0 ms per step, outside"),
        ({"backward": 12, "forward": 12}, "outside of what is timed (24.0 ms per step)"),
    ],
)
def test_a_late_rank_is_said_to_lose_most_where_it_loses_more_than_half(
    tmp_path: Path, pauses: dict[str, int], said: str
) -> None:
    run = load(record_pauses(tmp_path, {}, pauses))
    (late,) = [one for one in run.findings if one.rule == "straggler-rank"]
    assert f"It loses most {said}" in late.summary


def test_calls_that_share_rows_leave_no_place(tmp_path: Path) -> None:
    """Nobody knows when they held the rank up."""
    writer = Writer.create(tmp_path, header(world=1))
    forward, reduce = writer.name("forward", 0, "compute"), writer.name("all_reduce")
    for step in range(1, 31):
        at = step * 100 * MS
        writer.span(forward, at, at + 10 * MS, step)
        writer.collective(reduce, 0, at, at, 20 * MS, step, -1, 64, 50, 0, -1, THINNED)
        writer.step(step, at, at + 100 * MS)
    writer.close()
    assert found(load(tmp_path)) is None


def test_in_a_phase_without_parts_there_is_no_place(tmp_path: Path) -> None:
    run = load(record_pauses(tmp_path, {}, {}, lengths=LENGTHS | {"step": 80}))
    assert found(run, inside="step") is None
    assert run.findings


def test_between_two_of_a_kind_it_is_the_next_one() -> None:
    assert Place("backward", "backward", between_steps=False, share=0.7).words == (
        "between backward and the next backward"
    )
