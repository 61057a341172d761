"""Least and greatest times over the ranks: somebody waits, and who is late is not told."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.findings import Finding
from dsprof.run import Run, load
from tests.findings.plants import one, rules, silent, why

STAGES = "using world size: 8, data-parallel-size: 8, tensor-model-parallel size: 1, "
WORK = (1100.0, 1500.0)
INPUT = (4.0, 380.0)
REDUCED = (40.0, 430.0)


def log(
    tmp_path: Path,
    work: tuple[float, float] = WORK,
    data: tuple[float, float] = INPUT,
    reduced: tuple[float, float] = REDUCED,
    *,
    compute: tuple[float, float] | None = None,
    optimizer: tuple[float, float] | None = None,
    stages: int | None = 1,
    lines: int = 8,
    every: int = 5,
) -> Run:
    """Lines of the last rank, each of `every` steps of two seconds."""
    told = [f"{STAGES}pipeline-model-parallel size: {stages} "] if stages else []
    timers = {"forward-backward": work, "batch-generator": data, "grads-all-reduce": reduced}
    timers |= {"forward-compute": compute} if compute else {}
    timers |= {"optimizer": optimizer} if optimizer else {}
    for line in range(1, lines + 1):
        step = f" iteration {line * every:8}/     500"
        told += [
            f"{step} | elapsed time per iteration (ms): 2000.0 | lm loss: 7.5E+00 |",
            "(min, max) time across ranks (ms):",
            *(f"    {name} {'.' * 20}: ({a:.2f}, {b:.2f})" for name, (a, b) in timers.items()),
        ]
    path = tmp_path / "megatron.log"
    path.write_text("\n".join(told) + "\n")
    return load(path)


def late(tmp_path: Path) -> Finding:
    return one(log(tmp_path), "straggler-rank")


def test_ranks_that_lie_apart_in_their_own_work_wait_for_each_other(tmp_path: Path) -> None:
    found = late(tmp_path)
    assert found.seconds_per_step == pytest.approx(0.4)
    assert found.share == pytest.approx(0.2)
    assert "up to 20 % of each step" in found.title
    assert "forward-backward takes 1.10 s to 1.50 s" in found.title


def test_beyond_a_fifth_of_a_step_that_is_critical(tmp_path: Path) -> None:
    apart = log(tmp_path, (1100.0, 1520.0), reduced=(40.0, 450.0))
    assert one(apart, "straggler-rank").severity == "critical"
    near = log(tmp_path, (1100.0, 1480.0), reduced=(40.0, 410.0))
    assert one(near, "straggler-rank").severity == "warning"


def test_who_waits_inside_the_optimizer_was_early_before_it(tmp_path: Path) -> None:
    waited = log(tmp_path, data=(4.0, 5.0), compute=(300.0, 690.0), optimizer=(20.0, 430.0))
    assert one(waited, "straggler-rank").phase == "forward-compute"
    alone = log(tmp_path, (1100.0, 1110.0), (4.0, 5.0), (40.0, 41.0), optimizer=(20.0, 430.0))
    assert one(alone, "straggler-rank").phase == "optimizer"


def test_who_is_late_is_not_made_up(tmp_path: Path) -> None:
    found = late(tmp_path)
    assert found.ranks == ()
    assert found.confidence == "medium"
    assert found.gain == pytest.approx((0.0, 0.4))
    assert found.advice[0][:3] == ("--timing-log-option", "minmax", "all")


def test_the_timer_inside_that_differs_as_much_is_named_and_where_they_meet(tmp_path: Path) -> None:
    found = late(tmp_path)
    assert found.phase == "batch-generator"
    assert "batch-generator differs by 376 ms" in found.summary
    assert "grads-all-reduce, where they meet: 40.0 ms to 430 ms" in found.summary
    assert [proof.line for proof in found.evidence] == [39, 40, 41]


@pytest.mark.parametrize(
    ("data", "named"), [((4.0, 380.0), "batch-generator"), ((4.0, 6.0), "forward-compute")]
)
def test_of_timers_inside_each_other_the_innermost_that_differs_as_much_is_named(
    tmp_path: Path, data: tuple[float, float], named: str
) -> None:
    """Inputs are made inside forward-compute, which lies inside forward-backward."""
    found = one(log(tmp_path, data=data, compute=(400.0, 790.0)), "straggler-rank")
    assert found.phase == named
    assert f"Inside it {named} differs" in found.summary


def test_an_input_that_is_alike_on_all_ranks_is_not_named(tmp_path: Path) -> None:
    found = one(log(tmp_path, data=(4.0, 6.0)), "straggler-rank")
    assert found.phase == "forward-backward"
    assert "batch-generator" not in found.summary


def test_barriers_between_timers_leave_no_waiting_in_the_reduction(tmp_path: Path) -> None:
    found = one(log(tmp_path, reduced=(40.0, 42.0)), "straggler-rank")
    assert found.seconds_per_step == pytest.approx(0.4)
    assert "where they meet" not in found.summary


def test_what_waits_in_the_reduction_is_no_communication(tmp_path: Path) -> None:
    assert "communication-bound" not in rules(log(tmp_path))
    all_of_it = one(log(tmp_path, reduced=(420.0, 430.0)), "communication-bound")
    assert all_of_it.seconds_per_step == pytest.approx(0.43)  # 10 ms of it are not worth naming


@pytest.mark.parametrize(
    ("data", "title", "severity"),
    [
        ((180.0, 420.0), "9.0 % to 21 % of a step is waiting for input data", "warning"),
        ((440.0, 460.0), "22 % to 23 % of a step is waiting for input data", "critical"),
    ],
)
def test_least_and_greatest_times_bound_a_class_whose_maxima_divide_no_step(
    tmp_path: Path, data: tuple[float, float], title: str, severity: str
) -> None:
    """The longest forward-compute is longer than the longest forward-backward."""
    run = log(tmp_path, WORK, data, compute=(1400.0, 1700.0), lines=4)
    assert run.repairs["name"].to_list()[0] == "maxima-of-parts"
    found = one(run, "data-bound")
    assert (found.severity, found.gain) == (severity, None)
    assert found.title == f"{title}, depending on the rank"
    assert found.seconds_per_step == pytest.approx(data[0] / 1000)
    assert found.advice[0].setting == "--timing-log-option"


def test_greatest_times_below_the_threshold_of_a_class_are_no_finding(tmp_path: Path) -> None:
    run = log(tmp_path, WORK, (10.0, 180.0), compute=(1400.0, 1700.0))
    assert "data-bound" not in rules(run)


def test_maxima_that_divide_their_step_are_shares_and_no_bounds(tmp_path: Path) -> None:
    found = one(log(tmp_path, data=(180.0, 420.0)), "data-bound")
    assert found.title == "21 % of a step is waiting for input data"


def test_ranks_that_are_alike_are_no_finding(tmp_path: Path) -> None:
    assert silent(log(tmp_path, work=(1400.0, 1500.0)), "straggler-rank")


@pytest.mark.parametrize("stages", [4, None])
def test_stages_of_a_pipeline_differ_by_their_work(tmp_path: Path, stages: int | None) -> None:
    said = why(log(tmp_path, stages=stages), "straggler-rank")
    assert said is not None
    assert "different work" in said


def test_a_few_steps_prove_no_late_rank(tmp_path: Path) -> None:
    said = why(log(tmp_path, lines=7, every=1), "straggler-rank")
    assert said == "6 steps are timed by every rank, 20 needed"  # the first one warms up
    said = why(log(tmp_path, lines=1, every=1), "straggler-rank")
    assert said == "1 step is timed by every rank, 20 needed"
