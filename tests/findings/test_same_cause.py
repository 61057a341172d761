"""One cause, one finding; a second cause stays one of its own."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dsprof.events import Severity
from dsprof.findings import findings_of
from dsprof.findings.finding import Finding
from dsprof.run import Run
from tests.findings.over_time.test_launches import launched
from tests.findings.plants import Row, config, memory, metric, one, phase, run_of, steps


def warned(run: Run) -> list[str]:
    return [found.rule for found in findings_of(run) if found.severity is not Severity.INFO]


def settings(found: Finding) -> list[str]:
    return [advice.setting for advice in found.advice]


def late(count: int, behind: dict[int, float], always: float = 0.0) -> Run:
    return run_of(lateness(count, behind, always), world_size=2)


def lateness(count: int, behind: dict[int, float], always: float = 0.0) -> list[Row]:
    """Two ranks; in some steps rank 1 is late and rank 0 waits for it."""
    rows = []
    for step in range(1, count + 1):
        more = behind.get(step, 0.0)
        rows.append(metric("step_seconds", step, 1.0 + more))
        more += always
        for rank in (0, 1):
            own = more * rank
            rows += [
                phase("forward", step, 0.93 - always + own, rank),
                phase("backward_allreduce", step, 0.05 + more - own, rank),
            ]
    return rows


def test_a_rank_that_is_late_in_some_steps_is_told_with_these_steps_alone() -> None:
    run = late(60, dict.fromkeys((4, 9, 17, 18, 26, 33, 39, 46, 47, 55, 58), 2.0))
    assert warned(run)[0] == "step-spikes"
    assert "straggler-rank" not in warned(run)
    assert one(run, "step-spikes").ranks == (1,)


def test_a_rank_that_is_late_from_some_step_on_is_told_with_the_slowdown_alone() -> None:
    run = late(80, dict.fromkeys(range(41, 81), 0.6))
    assert "slowdown" in warned(run)
    assert "straggler-rank" not in warned(run)
    note = one(run, "straggler-rank")
    assert "This time is counted in slowdown, too" in note.summary


def test_steps_that_stick_out_because_they_are_the_slower_ones_are_told_as_slowdown_alone() -> None:
    run = late(50, dict.fromkeys(range(41, 51), 0.6))
    assert findings_of(run)[0].rule == "slowdown"
    assert "step-spikes" not in warned(run)
    assert "This time is counted in slowdown, too" in one(run, "step-spikes").summary


def test_steps_that_stick_out_of_the_slower_ones_as_well_stay_a_finding() -> None:
    more = dict.fromkeys(range(101, 201), 0.6) | dict.fromkeys((120, 150, 171, 199), 9.0)
    assert {"slowdown", "step-spikes"} <= set(warned(late(200, more)))


def test_so_is_one_that_is_late_in_a_launch_which_is_slower_than_the_one_before() -> None:
    quick = steps(40, {"forward": 0.6, "backward_allreduce": 0.05}, 0.7, ranks=2)
    later = lateness(80, dict.fromkeys(range(41, 81), 0.6))
    world = config("world_size", 2)
    run = run_of(launched(0, quick, world) + launched(1, later, world))
    assert warned(run).count("slowdown") == 2
    assert "This time is counted in slowdown, too" in one(run, "straggler-rank").summary


def test_a_rank_that_is_late_in_all_steps_is_told_beside_those_in_which_it_is_later() -> None:
    run = late(60, dict.fromkeys((4, 9, 17, 26, 33, 39, 46, 55), 2.0), always=0.3)
    assert {"step-spikes", "straggler-rank"} <= set(warned(run))


def test_input_that_is_late_on_some_ranks_is_told_with_these_ranks_and_how_to_load() -> None:
    rows = [
        row
        for step in range(1, 31)
        for rank in range(4)
        for slow in [0.3 * (rank > 1)]
        for row in (
            phase("data", step, 0.01 + slow, rank),
            phase("forward", step, 0.63, rank),
            phase("backward_allreduce", step, 0.35 - slow, rank),
        )
    ]
    run = run_of([*steps(30, {}, 1.0), *rows], world_size=4)
    assert warned(run) == ["straggler-rank"]
    assert one(run, "straggler-rank").ranks == (2, 3)
    assert settings(one(run, "straggler-rank"))[0] == "DataLoader(num_workers=...)"


def updates(least: float, late: float) -> Run:
    """Two ranks whose updates take `least`, and that of rank 1 `late` more."""
    rows = [
        row
        for step in range(1, 31)
        for rank in (0, 1)
        for row in (
            phase("forward", step, 0.5 - least, rank),
            phase("optimizer_step", step, least + late * rank, rank),
            phase("optimizer_allgather", step, 0.5 - late * rank, rank),
        )
    ]
    return run_of([*steps(30, {}, 1.0), *rows, config("world_size", 2)])


def test_an_update_that_is_late_on_some_rank_is_told_with_this_rank_and_its_cure_alone() -> None:
    run = updates(0.01, 0.4)
    assert warned(run)[0] == "straggler-rank"
    assert "optimizer-bound" not in warned(run)
    assert "This time is counted in straggler-rank" in one(run, "optimizer-bound").summary
    assert "gradient_accumulation_steps" not in settings(one(run, "straggler-rank"))


def test_updates_of_all_ranks_are_told_beside_a_rank_whose_update_is_later_still() -> None:
    assert {"straggler-rank", "optimizer-bound"} <= set(warned(updates(0.2, 0.3)))


def test_input_of_all_ranks_is_told_beside_a_rank_whose_input_is_later_still() -> None:
    rows = [
        row
        for step in range(1, 31)
        for rank in (0, 1)
        for row in (
            phase("data", step, 0.3 + 0.3 * rank, rank),
            phase("forward", step, 0.3, rank),
            phase("backward_allreduce", step, 0.4 - 0.3 * rank, rank),
        )
    ]
    assert {"straggler-rank", "data-bound"} <= set(warned(run_of([*steps(30, {}, 1.0), *rows])))


def test_input_that_is_late_in_few_steps_is_told_as_such_and_not_as_steps_that_are_longer() -> None:
    rows = []
    for step in range(1, 61):
        more = 2.0 if step % 12 == 0 else 0.0
        rows.append(metric("step_seconds", step, 1.0 + more))
        rows += [phase("data", step, 0.01 + more), phase("forward", step, 0.95)]
    run = run_of(rows, world_size=1)
    assert warned(run) == ["data-bound"]
    assert "This time is counted in data-bound, too" in one(run, "step-spikes").summary


def longer(which: Iterable[int], what: str, more: float) -> Run:
    """80 steps of 1 s; some of them are longer by so much of `what`, "" for no phase."""
    rows = []
    for step in range(1, 81):
        added = more if step in which else 0.0
        took = {"data": 0.01, "forward": 0.9, "optimizer_step": 0.05}
        if what:
            took[what] += added
        rows.append(metric("step_seconds", step, 0.99 + 0.001 * (step % 7) + added))
        rows += [phase(name, step, seconds) for name, seconds in took.items()]
    return run_of(rows, world_size=1)


@pytest.mark.parametrize(
    ("which", "kept"), [(range(10, 81, 10), "step-spikes"), (range(41, 81), "slowdown")]
)
def test_updates_that_are_long_in_some_steps_are_told_with_these_steps_alone(
    which: range, kept: str
) -> None:
    run = longer(which, "optimizer_step", 2.5)
    assert warned(run) == [kept]
    assert "gradient_accumulation_steps" not in settings(one(run, kept))
    note = one(run, "optimizer-bound")
    assert f"This time is counted in {kept}, too" in note.summary
    assert (note.advice, note.gain) == ((), None)


def test_untimed_time_that_begins_at_some_step_is_told_with_it_and_with_how_to_look() -> None:
    run = longer(range(41, 81), "", 0.6)
    assert warned(run) == ["slowdown"]
    assert settings(one(run, "slowdown"))[0] == "dsprof attach"
    assert "is counted in slowdown, too" in one(run, "unaccounted-time").summary


def test_input_that_is_late_from_some_step_on_is_told_with_it_and_with_how_to_load() -> None:
    run = longer(range(41, 81), "data", 0.6)
    assert warned(run) == ["slowdown"]
    assert settings(one(run, "slowdown"))[0] == "DataLoader(num_workers=...)"


def test_where_steps_become_longer_by_something_else_long_updates_stay_a_finding() -> None:
    rows = []
    for step in range(1, 81):
        more = 0.6 * (step > 40)
        took = {"forward": 0.7 + more, "optimizer_step": 0.29}
        rows.append(metric("step_seconds", step, 1.0 + 0.001 * (step % 7) + more))
        rows += [phase(name, step, seconds) for name, seconds in took.items()]
    assert {"slowdown", "optimizer-bound"} <= set(warned(run_of(rows, world_size=1)))


def test_a_first_step_that_sticks_out_does_not_make_input_part_of_a_slowdown() -> None:
    rows = []
    for step in range(1, 81):
        more = 0.6 * (step > 40) + 30.0 * (step == 2)
        took = {"data": 0.3, "forward": 0.69 + more}
        rows.append(metric("step_seconds", step, 1.0 + 0.001 * (step % 7) + more))
        rows += [phase(name, step, seconds) for name, seconds in took.items()]
    run = run_of(rows, world_size=1)
    assert "This time is counted in slowdown" not in one(run, "data-bound").summary
    assert {"slowdown", "data-bound"} <= set(warned(run))


def test_workers_that_start_anew_for_input_that_is_late_in_few_steps_are_advised_first() -> None:
    few = (21, 41, 61)
    rows = [config("data_workers", 2), *(metric("data_iterators", step, 1) for step in few)]
    for step in range(1, 81):
        took = {"data": 0.01 + 5.0 * (step in few), "forward": 0.95}
        rows.append(metric("step_seconds", step, sum(took.values())))
        rows += [phase(name, step, seconds) for name, seconds in took.items()]
    run = run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows])
    assert warned(run) == ["data-bound"]
    advised = ["DataLoader(persistent_workers=...)", "DataLoader(num_workers=...)"]
    assert settings(one(run, "data-bound"))[:2] == advised


def test_memory_that_grows_is_told_before_steps_that_become_much_longer_meanwhile() -> None:
    rows = [
        metric("step_seconds", s, 1.0 if s < 40 else 1.0 + (s - 39) * 0.1) for s in range(1, 61)
    ]
    rows += [memory("allocated", s, bytes=2 * 2**30 + s * 2**27) for s in range(1, 61)]
    found = findings_of(run_of(rows))
    assert [one.rule for one in found][:2] == ["memory-growth", "slowdown"]
    assert "Steps become longer meanwhile" in found[0].summary


def test_where_memory_grows_longer_steps_are_not_put_down_to_the_lengths_of_batches() -> None:
    rows = []
    for step in range(1, 61):
        more = 2.0 if step in {5, 19, 24, 41, 55} else 0.0
        rows.append(metric("step_seconds", step, 1.0 + more))
        rows += [phase("forward", step, 0.3 + more / 3)]
        rows += [phase("backward_inner", step, 0.6 + more / 1.5)]
    grows = [memory("allocated", s, bytes=2 * 2**30 + s * 2**27) for s in range(1, 61)]
    lengths = "lengths of the batches"
    assert lengths in settings(one(run_of(rows, world_size=1), "step-spikes"))
    assert lengths not in settings(one(run_of(rows + grows, world_size=1), "step-spikes"))
