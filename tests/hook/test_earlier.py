"""Engines that were there before the search for them began, on two real ranks."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.hook.jobs_of import ENVIRONMENT, interpreter, launch
from tests.hook.rows import Rows, folder

JOB = ("earlier",)
STEPS, MICROS = 4, 2
#: The steps of each engine that are recorded: not the one at whose end it is found.
RECORDED = {
    "zero": {0: [2, 3, 4]},
    "two": {0: [2, 3, 4], 1: [2, 3, 4]},
    "pipe": {0: [2, 3, 4, 5]},
    "named": {0: [1, 2]},
    "ended": {0: [2]},
}


@pytest.fixture
def rows(results: list[dict[str, Any]], out: Path, way: str) -> list[Rows]:
    assert len(results) == 2
    return folder(out / way)


@pytest.mark.parametrize("way", RECORDED)
def test_an_engine_is_recorded_from_its_next_step_on(rows: list[Rows], way: str) -> None:
    for rank in rows:
        found = {
            one: [row.step for row in rank.steps if row.engine == one] for one in RECORDED[way]
        }
        assert found == RECORDED[way]


@pytest.mark.parametrize("way", ["zero"])
def test_its_first_recorded_step_is_whole(rows: list[Rows]) -> None:
    for rank in rows:
        assert {row.micros for row in rank.steps} == {MICROS}
        forwards = [row.step for row in rank.spans if row.path == "forward"]
        assert forwards == sorted([2, 3, 4] * MICROS)


@pytest.mark.parametrize("way", ["two"])
def test_engines_have_the_same_numbers_on_all_ranks(rows: list[Rows]) -> None:
    """The one that steps first is number 0."""
    for rank in rows:
        assert rank.header["config"]["zero_stage"] == 3
        assert rank.config["zero_stage"] == 1


def test_losses_are_the_same_to_the_last_bit_and_classes_are_as_before(
    results: list[dict[str, Any]],
) -> None:
    for result in results:
        assert result.pop("restored")
        assert all(plain == watched for plain, watched in result.values())


_TRAINS = "net(torch.ones(2)).backward(); optimizer.step()\n"


@pytest.mark.parametrize(
    ("code", "environment", "says"),
    [
        (_TRAINS, {}, True),
        (_TRAINS + "handle.detach()", {}, True),
        ("", {}, False),
        (_TRAINS, {"RANK": "1"}, False),
        (_TRAINS, {"DSPROF_LAUNCH": "its end is told by dsprof attach"}, False),
        ("dsprof.attach(net, optimizer=optimizer)\n" + _TRAINS, {}, False),
        (
            _TRAINS + "import os, sys\nif os.fork(): os.wait(); handle.detach()\nsys.exit()",
            {},
            True,
        ),
    ],
    ids=["trains", "detached", "does not train", "rank 1", "launched", "named", "forks"],
)
def test_a_process_that_trained_what_nobody_found_says_so_once(
    code: str, environment: dict[str, str], says: bool, tmp_path: Path
) -> None:
    told = (code, json.dumps(environment))
    assert launch("unfound", (1, tmp_path, *told), needs="torch")
    said = (tmp_path / "stderr").read_text(encoding="utf-8")
    assert said.count("dsprof: no step was recorded (") == says
    assert ("dsprof.attach(model, optimizer=optimizer)" in said) == says


def test_a_process_without_standard_error_says_nothing_on_standard_output(tmp_path: Path) -> None:
    code = f"""
import sys, torch, dsprof
dsprof.attach()
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{_TRAINS}sys.stderr = None
"""
    done = subprocess.run(
        [interpreter("torch"), "-c", code], env=os.environ | ENVIRONMENT, cwd=tmp_path,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not done.stdout
