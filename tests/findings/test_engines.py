"""Engines that take turns, an actor and a critic, are judged each by its own step."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from dsprof.events import Severity
from dsprof.findings import Finding, findings_of
from dsprof.recording import Writer
from dsprof.run import Run, load
from dsprof.text.overview import overview
from dsprof.text.summary import summary
from tests.findings.plants import WELL, Row, config, one, recorded, rules, run_of, steps
from tests.recording.recorded import MS, header

#: 560 ms of communication in a step of 800 ms.
SLOW = WELL | {"forward": 0.06, "backward_inner": 0.08, "backward_allreduce": 0.52}


def two(second: dict[str, float] = SLOW, seconds: float = 0.8) -> Run:
    """Engine 0 is well and takes more time, engine 1 is `second`."""
    rows = [row | {"engine": 1} for row in steps(40, second, seconds)]
    return run_of([*steps(40, WELL), *rows])


def shown(run: Run) -> str:
    file = StringIO()
    Console(file=file, width=80, highlight=False).print(summary(run))
    return " ".join(file.getvalue().split())


def bound(run: Run) -> Finding:
    return one(run, "communication-bound")


def test_what_holds_an_engine_back_is_told_of_it_though_another_takes_more_time() -> None:
    found = bound(two())
    assert found.title.startswith("Engine 1: 70 % of a step is communication")
    assert found.engine == 1
    assert found.share == pytest.approx(0.7)
    assert found.severity is Severity.CRITICAL
    assert "39 printed steps, 2 to 40, of engine 1 alone" in found.summary


def test_its_proof_is_a_line_of_its_own() -> None:
    run = two()
    engines = dict(zip(run.told["line"], run.told["engine"], strict=True))
    assert {engines[proof.line] for proof in bound(run).evidence} == {1}


def test_its_cost_is_a_part_of_its_own_step() -> None:
    said = shown(two())
    assert "560 ms of 800 ms per step (70 %)" in said
    assert "engine 0 takes 1.00 s per step, 85 % of it compute" in said
    assert "engine 1 takes 800 ms per step, 70 % of it communication" in said


def test_the_table_says_whose_step_it_is_where_the_verdict_is_of_another_engine() -> None:
    said = shown(two())
    assert "Where a step goes 1.00 s, mean of 39 steps (logged times) of engine 0" in said
    assert "of engine" not in shown(run_of(steps(40, WELL)))


def test_the_run_is_well_only_where_every_engine_is() -> None:
    assert "healthy" not in rules(two())
    small = {name: seconds / 2 for name, seconds in WELL.items()}
    found = one(two(small, 0.5), "healthy")
    assert found.title == (
        "Nothing holds this run back: compute is 85 % of a step of engine 0, communication 10 %; "
        "compute is 85 % of a step of engine 1, communication 10 %"
    )


def in_turns(
    folder: Path,
    *,
    engines: int,
    more: int = 0,
    name: str = "checkpoint",
    order: Sequence[tuple[int, int]] = (),
) -> Run:
    """30 steps of 16 samples: 100 ms of the actor, then 40 ms of each other engine; `more` ms of
    each step are a phase of that name. `order` has the engine and number of each step, if other.
    """
    writer = Writer.create(folder, header(config={"train_batch_size": 16}))
    forward = writer.name("forward", 0, "compute")
    at = 0
    for engine, step in order or [(e, s) for s in range(1, 31) for e in range(engines)]:
        begin, at = at, at + (40 if engine else 100) * MS
        writer.span(forward, begin, at - more * MS, step, engine=engine)
        if more:
            class_ = "checkpoint" if name == "checkpoint" else "other"
            phase = writer.name(name, 0, class_)
            writer.span(phase, at - more * MS, at, step, engine=engine)
        writer.step(step, begin, at, engine=engine)
        writer.flush()
    writer.close()
    return load(folder)


@pytest.mark.parametrize(
    ("engines", "said"),
    [(1, "Speed 160 samples/s"), (2, "Speed 114 samples/s")],
)
def test_the_speed_of_engines_in_turns_is_by_the_clock(
    tmp_path: Path, engines: int, said: str
) -> None:
    run = in_turns(tmp_path, engines=engines)
    assert said in shown(run)
    every = "2 in turns, a step of engine 0 every 140 ms: engine 0 takes 100 ms per step"
    assert (every in shown(run)) == (engines > 1)
    assert overview(run).samples_per_second == pytest.approx(16 / (0.06 + 0.04 * engines))


def test_models_that_are_trained_one_after_another_take_no_turns(tmp_path: Path) -> None:
    """As for each fold, or for each setting that is tried."""
    order = [(engine, step) for engine in range(3) for step in range(1, 31)]
    said = shown(in_turns(tmp_path, engines=3, order=order))
    assert "3 one after another, a step of engine 0 every 100 ms: engine 0 takes 100 ms" in said
    assert "in turns" not in said


def test_what_all_engines_save_is_a_part_of_the_time_of_all(tmp_path: Path) -> None:
    found = one(in_turns(tmp_path, engines=2, more=14), "checkpoint-stall")
    assert found.share == pytest.approx(2 * 14 / 140)
    assert "60 saves took 840 ms in 30 steps" in found.summary


def test_forwards_without_a_backward_are_a_share_of_the_engines_own_step(tmp_path: Path) -> None:
    run = in_turns(tmp_path, engines=2, more=20, name="evaluation")
    titles = [found.title for found in run.findings if found.rule == "evaluation-stall"]
    assert titles == [
        "Engine 1: Forwards without a backward take 50 % of a step",
        "Engine 0: Forwards without a backward take 20 % of a step",
    ]


@pytest.mark.parametrize(
    ("calls", "rule", "title"),
    [
        ([recorded("all_reduce", 0, 1e3, 0.02, "backward")] * 20, "small-messages", "100 % of c"),
        (
            [recorded("all_gather_into_tensor", 0, 1e8, 0.4, "forward")],
            "zero3-gather-stall",
            "40 % of a step is spent gathering ZeRO-3",
        ),
    ],
)
def test_what_the_calls_of_another_engine_cost_is_told_of_it(
    calls: list[Row], rule: str, title: str
) -> None:
    at = pd.Timestamp("2024-01-01")
    stage = config("zero_stage", 3.0 if rule == "zero3-gather-stall" else 1.0)
    own = steps(40, {"forward": 0.3, "backward_inner": 0.3, "reduce_grads": 0.4})
    own += [row | {"step": step} for step in range(1, 41) for row in calls]
    rows = [config("world_size", 2.0), stage, *steps(40, WELL, 1.2)]
    rows += [row | {"engine": 1} for row in own]
    for row in rows:
        turn = 2 * int(row.get("step", 0)) + int(row.get("engine", 0))
        row |= {"source": "rank-00000.1.dsprof", "at": at + pd.Timedelta(turn, "s")}
    found = one(run_of(rows), rule)
    assert found.title.startswith(f"Engine 1: {title}")
    assert found.engine == 1
    assert found.share == pytest.approx(0.4)


def waiting_in_turns(folder: Path, *, timed: bool = True) -> Run:
    """30 turns of 100 ms. Rank 1 waits 40 ms for the input of engine 1, whose step ends without
    meeting rank 0: that waits for it in the step of engine 0, 90 ms long there and 50 on rank 1.
    What is not `timed` is of no phase."""
    for rank in (0, 1):
        writer = Writer.create(folder, header(rank=rank, world=2, config={"world_size": 2}))
        data, forward = writer.name("data", 0, "data"), writer.name("forward", 0, "compute")
        reduce = writer.name("all_reduce", writer.name("backward", 0, "compute"))
        whose = writer.name("0 ranks 0-1")
        for step in range(1, 31):
            begin = step * 100 * MS
            ready = begin + 40 * MS * rank
            if rank and timed:
                writer.span(data, begin, ready, step, engine=1)
            writer.span(forward, ready, ready + 10 * MS, step, engine=1)
            writer.step(step, begin, ready + 10 * MS, engine=1)
            meets, ends = ready + 50 * MS, begin + 100 * MS
            writer.span(forward, ready + 10 * MS, meets, step, engine=0)
            writer.collective(reduce, whose, meets, meets, ends - meets, step, size=64, seq=step)
            writer.step(step, ready + 10 * MS, ends, engine=0)
        writer.close()
    return load(folder)


def test_what_ranks_lose_in_one_engines_step_and_wait_for_in_anothers_is_not_replayed(
    tmp_path: Path,
) -> None:
    run = waiting_in_turns(tmp_path)
    late = one(run, "straggler-rank")
    assert late.title == "Engine 0: Rank 0 waits for rank 1 on worker-1, 44 % of each step"
    assert late.seconds_per_step == pytest.approx(0.04)
    assert late.share == pytest.approx(40 / 90)  # of the step of rank 0, which waits
    assert late.what_if == ""
    assert late.gain == pytest.approx((0.02, 0.04))
    assert one(run, "data-bound").what_if == ""


def test_what_a_late_rank_does_between_the_phases_of_one_engine_others_wait_for_in_anothers(
    tmp_path: Path,
) -> None:
    run = waiting_in_turns(tmp_path, timed=False)
    late = one(run, "straggler-rank")
    assert late.title == "Engine 0: Rank 0 waits for rank 1 on worker-1, 44 % of each step"
    (untimed,) = (found for found in run.findings if "explained by no timer" in found.title)
    assert untimed.severity == "info"
    assert untimed.title == (
        "Engine 1: 67 % of a step is explained by no timer, all of that on rank 1, for which the "
        "others wait"
    )


def test_one_engine_needs_no_name() -> None:
    found = findings_of(run_of(steps(40, SLOW, 0.8)))[0]
    assert found.engine is None
    assert found.title.startswith("70 % of a step")
