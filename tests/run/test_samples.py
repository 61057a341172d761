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
        for word, seconds in phases.items():
            raw = word if word in found else f"{word}_microstep"
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
    if "hosts" in facts:
        assert run.meta["hosts"] == sorted(facts["hosts"])
    for setting, value in facts.get("config", {}).items():
        assert run.config[setting] == value


#: What is noted of sound logs too.
NOTES = {"initial-step-zero", "log-level-hides-lines", "reduce-scatter-n-times"}


@pytest.mark.parametrize("name", NAMES)
def test_defects_are_met_where_they_are_and_nowhere_else(name: str) -> None:
    run, facts = read(name)
    found = set(run.repairs["name"])
    assert set(facts["repairs"]) <= found <= {*facts["repairs"], *NOTES}


@pytest.mark.parametrize("name", NAMES)
def test_skips_and_overflows_are_those_of_the_log(name: str) -> None:
    run, facts = read(name)
    if facts.get("skipped") is not None:
        assert run.steps["skipped"].dropna().iloc[-1] == facts["skipped"]
    steps = run.steps.loc[run.steps["overflow"].fillna(False), "step"]
    assert steps.tolist() == facts.get("overflow_steps", [])


@pytest.mark.parametrize("name", NAMES)
def test_problems_are_found_and_the_cause_is_among_them(name: str) -> None:
    run, facts = read(name)
    named = [problem["kind"] for problem in facts["problems"]]
    assert set(named) <= set(run.problems["kind"])
    if named:
        causes = run.problems[run.problems["root_cause"]]
        assert causes["kind"].tolist() == [named[0]]
    else:
        assert not run.problems["root_cause"].any()


@pytest.mark.parametrize("name", NAMES)
def test_collectives_add_up_to_what_the_logger_sums(name: str) -> None:
    run, facts = read(name)
    comm = run.comm[run.comm["total"]] if run.comm["total"].any() else run.comm
    for told in facts.get("comm", []):
        rows = comm[(comm["op"] == told["op"]) & (comm["bytes"].round() == told["bytes"])]
        assert rows["count"].sum() == told["count"], told
