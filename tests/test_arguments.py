"""How what a user writes behind a command is read, and refused."""

from __future__ import annotations

import pytest

from tests.conftest import SAMPLES, Dsprof

SEED = SAMPLES / "neox_pipeline_2023.log"


def test_a_link_speed_without_a_unit_is_told_how_to_say_it(cli: Dsprof) -> None:
    done = cli("report", SEED, "--link", "100")
    assert "'100' is not a link speed" in done.stderr
    assert "100Gb (bits) or 12.5GB/s (bytes)" in " ".join(done.stderr.split())


def test_a_severity_that_is_none_is_refused_in_our_own_words(cli: Dsprof) -> None:
    done = cli("report", SEED, "--fail-on", "doom")
    assert done.returncode == 2
    assert "'doom' is not one of info, warning, critical" in done.stderr
    assert "Value error" not in done.stderr


@pytest.mark.parametrize("steps", ["5", "5:3", "a:b", "3:", ""])
def test_steps_that_are_no_range_are_wrong_usage(cli: Dsprof, steps: str) -> None:
    done = cli("export", SEED, "-o", "steps.csv", "--steps", steps)
    assert done.returncode == 2
    assert "first:last" in done.stderr
