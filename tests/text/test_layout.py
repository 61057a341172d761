"""What sections are made of: paths that can be read, whatever the width."""

from __future__ import annotations

import pytest
from rich.console import Group

from dsprof.text.layout import beside, place, say
from tests.text.said import rendered

PATH = "/scratch/experiments/2026-11/pretraining-of-a-large-model/worker-0_rank0.log"


@pytest.mark.parametrize("width", [40, 50, 60, 76])
def test_a_path_that_is_longer_than_a_line_breaks_behind_slashes(width: int) -> None:
    lines = rendered(beside(say("a step takes long"), place(PATH, 7)), width).splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    assert lines[-1].rstrip().endswith("/worker-0_rank0.log:7") or "worker-0_rank0.log:7" in lines
    assert "".join(lines).replace(" ", "").endswith(f"{PATH}:7")


def test_a_name_longer_than_a_line_is_all_there() -> None:
    name = "a" * 100
    lines = rendered(beside(place(f"/logs/{name}", 1)), 40).splitlines()
    assert lines[0] == "/logs/"
    assert "".join(lines) == f"/logs/{name}:1"


def test_a_path_that_fits_on_a_line_is_not_broken() -> None:
    said = rendered(beside(say("slow"), place("a/b/run.log", 3)), 40)
    assert said == "slow  a/b/run.log:3\n"


def test_a_proof_without_a_place_takes_no_line_for_it() -> None:
    assert rendered(Group(say("derived"), beside(place("", None))), 40) == "derived\n"
