"""Tables of the screens, from recordings written here."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.live.tables import bars_of, rank_bars, ranks_of
from dsprof.run import load
from tests.findings.plants import metric, phase, run_of
from tests.findings.test_engines import in_turns
from tests.findings.unknown.test_between_steps import is_twentieth
from tests.findings.unknown.test_between_steps import job as between_steps
from tests.live.jobs import Job


def test_the_bars_of_a_rank_that_is_late_between_its_phases_are_as_long_as_its_steps(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path, 2)
    job.run(8, slow={1: 60}, timed=False)
    job.close()
    bars = rank_bars(load(tmp_path)).of(1)
    assert [bar.step for bar in bars[-2:]] == [7, 8]
    assert bars[-1].seconds == pytest.approx(0.16, rel=0.01)
    assert sum(bar or 0.0 for bar in bars[-1].classes) == pytest.approx(0.1, rel=0.01)


def test_a_bar_shows_what_passes_between_steps() -> None:
    run = between_steps(lambda step: 1.5 if is_twentieth(step) else 0.0)
    high = [bar.step for _, bar in bars_of(run) if bar.seconds > 0.3]
    assert high == [25, 45, 65, 85, 105, 125, 145]


def test_the_bars_of_a_rank_that_trains_two_models_are_each_of_one_step(tmp_path: Path) -> None:
    bars = rank_bars(in_turns(tmp_path, engines=2)).of(0)
    assert [bar.step for bar in bars[-4:]] == [29, 29, 30, 30]
    assert [bar.seconds for bar in bars[-2:]] == pytest.approx([0.1, 0.04], rel=0.01)


def test_ranks_of_which_none_is_late_lie_within_what_the_table_shows(tmp_path: Path) -> None:
    """Rank 1 is last more often, rank 0 later in the mean."""
    job = Job(tmp_path, 2)
    for _ in range(5):
        job.run(3, slow={1: 2})
        job.run(1, slow={0: 10})
    job.close()
    ranks = ranks_of(load(tmp_path), [])
    late = [row.late_by for row in ranks.rows if row.late_by is not None]
    assert max(late) - min(late) == pytest.approx(0.00116, rel=0.01)
    assert ranks.sentence == "no rank is late: 2 ranks within 1.16 ms per step"


def test_ranks_whose_different_work_adds_up_to_as_much_are_told_to_make_nobody_wait() -> None:
    took = {
        "forward": (0.1, 0.2, 0.1),
        "backward": (0.2, 0.1, 0.2),
        "backward_allreduce": (0.0, 0.0, 0.0),
    }
    run = run_of(
        row
        for step in range(1, 7)
        for row in (
            metric("step_seconds", step, 0.4),
            *(phase(name, step, s, r) for name, each in took.items() for r, s in enumerate(each)),
        )
    )
    assert ranks_of(run, []).sentence == "no rank is known to make the others wait"
