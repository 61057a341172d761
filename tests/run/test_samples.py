"""Whole real logs: the facts beside each are what a reader must find in it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dsprof.run import Run, load

FOLDER = Path(__file__).parents[2] / "sample_logs"
NAMES = sorted(path.name.removesuffix(".facts.json") for path in FOLDER.glob("*.facts.json"))
MEASURES = {
    "loss": "loss",
    "lr": "lr",
    "samples_per_second": "samples_per_second",
    "step_seconds": "seconds",
}


@cache
def read(name: str) -> tuple[Run, dict[str, Any]]:
    facts = json.loads((FOLDER / f"{name}.facts.json").read_text(encoding="utf-8"))
    return load(FOLDER / f"{name}.log"), facts


def test_there_are_samples() -> None:
    assert {"neox_pipeline_2023", "deepspeed_pipeline_2023"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_printed_steps_are_found(name: str) -> None:
    run, facts = read(name)
    assert run.steps["step"].tolist() == facts["steps"]


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("name", NAMES)
def test_each_step_has_the_values_its_lines_print(name: str, measure: str) -> None:
    run, facts = read(name)
    found = run.steps.set_index("step")[MEASURES[measure]].dropna()
    for step, value in facts.get(measure, {}).items():
        assert found[int(step)] == pytest.approx(value, rel=1e-3), step


@pytest.mark.parametrize("name", NAMES)
def test_phases_are_those_of_one_step(name: str) -> None:
    run, facts = read(name)
    for step, phases in facts.get("phases", {}).items():
        rows = run.phases[run.phases["step"] == int(step)]
        found = rows.drop_duplicates("raw").set_index("raw")["seconds"]
        for raw, seconds in phases.items():
            assert found[raw] == pytest.approx(seconds, abs=1e-6), (step, raw)


@pytest.mark.parametrize("name", NAMES)
def test_classes_split_a_step_as_worked_out(name: str) -> None:
    run, facts = read(name)
    for step, classes in facts.get("classes", {}).items():
        row = run.steps.set_index("step").loc[int(step)]
        for word, value in classes.items():
            assert row[word] == pytest.approx(value, abs=6e-4), word


@pytest.mark.parametrize("name", NAMES)
def test_the_job_is_known_as_far_as_the_log_tells(name: str) -> None:
    run, facts = read(name)
    assert run.meta.get("framework") == facts["framework"]
    assert run.meta.get("versions", {}).get("deepspeed") == facts["version"]
    assert run.meta.get("world_size") == facts["world_size"]
    assert run.meta.get("zero_stage") == facts["zero_stage"]
    assert run.meta.get("hosts", []) == sorted(facts.get("hosts", []))


@pytest.mark.parametrize("name", NAMES)
def test_skips_problems_and_repairs_are_those_of_the_log(name: str) -> None:
    run, facts = read(name)
    skipped = run.steps["skipped"].dropna()
    if facts["skipped"] is not None:
        assert skipped.iloc[-1] == facts["skipped"]
    named = {
        problem["kind"] if isinstance(problem, dict) else problem for problem in facts["problems"]
    }
    assert set(run.problems["kind"]) == named
    assert run.repairs["name"].tolist() == facts["repairs"]
