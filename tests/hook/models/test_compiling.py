"""Compiled functions that train: the hook makes no graph of its own, and breaks none."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.hook.jobs_of import launch
from tests.hook.rows import folder

STEPS = 4
TIMED = ("method", "lambda", "found")
UNTIMED = ("all", "before")
IN_PLACE = ("in place", "in place, DDP")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the job has left its results and recordings."""
    out = tmp_path_factory.mktemp("compiled")
    assert launch("compiled", (1, out))
    return out


def told(compiled: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((compiled / "result-0.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("kind", [*TIMED, *UNTIMED])
def test_a_compiled_step_has_as_many_graphs_with_the_hook_as_without(
    compiled: Path, kind: str
) -> None:
    """And no warning is of the hook's functions. Where hooks run as they are, what calls them is
    left out of what is compiled, with the break that it has."""
    results = told(compiled)
    watched, plain = results[kind]["watched"], results[kind]["plain"]
    assert plain["graphs"] == 2 + (kind == "all")
    broken = [watched.pop("broken by"), plain.pop("broken by")]
    assert watched == plain
    assert broken[0] == broken[1] or (results["hooks run"] and not broken[0])


@pytest.mark.parametrize("kind", [*TIMED, "as it is"])
def test_a_compiled_optimizer_ends_a_step_and_is_its_phase(compiled: Path, kind: str) -> None:
    """A model that is found by itself is recorded from its second step on."""
    (rows,) = folder(compiled / kind)
    steps = list(range(1 + (kind == "found"), STEPS + 1))
    assert [row.step for row in rows.steps] == steps
    for path in ("forward", "backward", "step"):
        assert [row.step for row in rows.spans if row.path == path] == steps, path
    assert not any(math.isnan(seconds) for row in rows.steps for seconds in row.classes)


@pytest.mark.parametrize("kind", UNTIMED)
def test_where_nobody_sees_how_long_a_compiled_optimizer_took_a_step_has_no_classes(
    compiled: Path, kind: str
) -> None:
    """It ends behind the function that held it, or, of one compiled before recording began, where
    the next forward begins: the last one does not end then. Hooks that run as they are see all."""
    (rows,) = folder(compiled / kind)
    seen = told(compiled)["hooks run"]
    assert [row.step for row in rows.steps] == list(range(1, STEPS + (kind == "all" or seen)))
    assert {math.isnan(seconds) for row in rows.steps for seconds in row.classes} == {not seen}
    assert any(row.path == "step" for row in rows.spans) == seen


@pytest.mark.parametrize("kind", ["method", "lambda", "DDP"])
def test_a_recording_knows_in_which_steps_code_is_compiled(compiled: Path, kind: str) -> None:
    """In the second step an optimizer has its momenta, and a reducer its buckets. Of a model under
    DDP, PyTorch counts no graphs."""
    results = told(compiled)[kind]
    assert results["watched"]["losses"] == results["plain"]["losses"]
    (rows,) = folder(compiled / kind)
    assert [row.step for row in rows.steps] == list(range(1, STEPS + 1))
    assert list(rows.metric("compilations")) == [1, 2]


@pytest.mark.parametrize("kind", IN_PLACE)
def test_a_model_that_is_compiled_in_place_is_what_it_is_without_the_hook(
    compiled: Path, kind: str
) -> None:
    """`model.compile()` behind attaching: PyTorch leaves the frames of its own classes out."""
    results = told(compiled)
    assert results[kind]["watched"] == results[kind]["plain"]
    (rows,) = folder(compiled / kind)
    assert [row.step for row in rows.steps] == list(range(1, STEPS + 1))
    for path in ("forward", "backward", "step"):
        assert [row.step for row in rows.spans if row.path == path] == list(range(1, STEPS + 1))
