"""Tables of the screens, from recordings written here."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.live.tables import rank_bars
from dsprof.run import load
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
