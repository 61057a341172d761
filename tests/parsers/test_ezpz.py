"""Lines of ezpz's examples."""

from __future__ import annotations

import pytest

from tests.loaded import run_of_text


def test_host_times_around_forward_and_backward_are_no_parts_of_ezpz_steps() -> None:
    line = "[INFO][vit.py:197] - iter={} loss=7.125 dt=0.9 dtf=0.005 dtb=0.01\n"
    run = run_of_text(*map(line.format, range(8)))
    assert run.steps["step"].tolist() == list(range(8))
    assert run.steps["seconds"].tolist() == pytest.approx([0.9] * 8)
    assert run.phases.empty
