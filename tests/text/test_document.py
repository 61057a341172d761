"""The JSON document says what the terminal says, in types that are described."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dsprof.run import Run, load
from dsprof.text.document import document, to_json
from dsprof.text.overview import overview
from dsprof.text.words import count_of
from dsprof.units import format_count, format_seconds, format_share
from tests.findings.plants import metric, run_of
from tests.text.said import BAR, SEED, TRAINER, VARIED, Sample, rows_of, shown


def test_skipped_steps_of_two_launches_add_up(sample_run: Sample) -> None:
    run = sample_run(SEED)
    assert overview(run).skipped == 18
    twice = Run(
        pd.concat([run.recorded, run.recorded.assign(segment=1)], ignore_index=True),
        grammar=run.grammar,
    )
    assert overview(twice).skipped == 36
    assert overview(twice).launches == 2


@pytest.mark.parametrize(("begins", "counted", "total"), [(21, 7, 9), (21, 1, 14), (1, 7, 14)])
def test_a_launch_that_goes_on_counts_skipped_steps_on(
    begins: int, counted: int, total: int
) -> None:
    first = [{"step": step, "value": value} for step, value in ((10, 3.0), (20, 5.0))]
    later = [
        {"step": step, "value": value, "segment": 1}
        for step, value in ((begins, float(counted)), (begins + 10, 9.0))
    ]
    rows = [{"kind": "metric", "name": "skipped", **row} for row in (*first, *later)]
    assert overview(run_of(rows)).skipped == total


def test_the_document_is_strict_json_and_agrees_with_the_run(sample_run: Sample) -> None:
    run = sample_run(SEED)
    found = json.loads(json.dumps(document(run), allow_nan=False))
    assert found["schema"] == 1
    assert found["verdict"] == found["findings"][0]
    assert [f["rule"] for f in found["findings"]] == [f.rule for f in run.findings]
    assert found["steps"]["seconds"] == pytest.approx((5.658 + 5.792 + 5.797) / 3)
    assert found["steps"]["classes"]["wait"] == pytest.approx(4.1073, abs=1e-4)
    assert found["steps"]["loss"] == [11.0396, 9.1411]
    assert found["coverage"]["lines"] == 20


def test_mean_and_spread_are_of_the_same_steps_known_in_the_same_way(sample_run: Sample) -> None:
    """Timers of each step, and a rate for every tenth: only the rate tells of whole steps."""
    run = sample_run("slow_data_0.19.8")
    rates = run.steps[run.steps["whole_seconds"].notna()]
    told = document(run)["steps"]
    assert (told["rows"], told["averaged"], told["seconds_from"]) == (40, 4, "throughput")
    assert told["seconds"] == pytest.approx(rates["whole_seconds"].mean())
    assert told["median"] == pytest.approx(rates["whole_seconds"].median())
    assert told["p95"] is None  # no step of four is the slowest twentieth of them
    ends = (format_seconds(rates["whole_seconds"].agg(end)) for end in ("min", "max"))
    spread = f"median 47.2 ms, all of the 4 averaged between {' and '.join(ends)}"
    assert told["spread"] == spread
    assert f"40 of them printed, {spread}" in shown(run, 400)


def test_classes_count_as_other_what_parts_tell_apart_of_a_stage_that_is_unknown(
    sample_run: Sample,
) -> None:
    """As docs/json.md shows it."""
    told = document(sample_run("zero0_0.19.8"))["steps"]
    assert told["classes"].keys() == {"optimizer", "other"}
    assert sum(told["classes"].values()) == pytest.approx(told["seconds"])
    parts = {part["name"]: part for part in told["parts"]}
    apart = {"communication", "compute or communication", "other"}
    assert parts.keys() == {"optimizer", *apart}
    divided = sum(parts[name]["seconds"] for name in apart)
    assert divided == pytest.approx(told["classes"]["other"])
    assert [name for name, part in parts.items() if part["at_least"]] == ["communication"]
    said = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    milliseconds = {name: f"{name} {1e3 * part['seconds']:.2f}" for name, part in parts.items()}
    assert [text for text in milliseconds.values() if text not in said] == []


def test_a_critical_finding_is_listed_before_a_dearer_warning(sample_run: Sample) -> None:
    """As docs/json.md says: by severity, the dearest of each first."""
    seconds = np.random.default_rng(3).lognormal(0.0, 0.01, 1_000)
    seconds[940:] *= 1.4
    seconds[50:900:47] *= 5.0
    planted = run_of(metric("step_seconds", n, took) for n, took in enumerate(seconds, 1))
    dearer = [(one["severity"], one["seconds_per_step"]) for one in document(planted)["findings"]]
    assert [severity for severity, _ in dearer] == ["critical", "warning", "info"]
    assert dearer[0][1] < dearer[1][1]
    found = document(sample_run("torchrun_tee_0.19.8"))["findings"]
    severities = [one["severity"] for one in found]
    assert severities == sorted(severities, key=["critical", "warning", "info"].index)
    costs = [one["seconds_per_step"] or 0.0 for one in found]
    for severity in set(severities):
        own = [c for c, s in zip(costs, severities, strict=True) if s == severity]
        assert own == sorted(own, reverse=True)


TEN = (
    *VARIED, "zero3_0.19.8", "straggler_0.16.9", "slow_data_0.19.8", "memory_breakdown_0.19.8",
    "deepspeed_pipeline_2023",
)  # fmt: skip


@pytest.mark.parametrize("name", TEN)
def test_the_document_has_every_number_of_the_terminal(sample_run: Sample, name: str) -> None:
    run = sample_run(name)
    told, text = json.loads(json.dumps(document(run), allow_nan=False)), shown(run, 400)
    steps, verdict = told["steps"], told["verdict"]
    assert text.startswith(f"{verdict['title']}\n")
    if verdict["seconds_per_step"] is not None and verdict["rule"] not in UNPRICED:
        assert f"Cost      {format_seconds(verdict['seconds_per_step'])} of " in text
    if verdict["gain"] is not None:
        assert f"Gain      up to {format_seconds(verdict['gain'][1])} of " in text
    head, *rows = rows_of(text, "Where a step goes")
    assert len([row for row in rows if "≥ is" not in row]) == len(steps["parts"])
    assert not rows or f"{format_seconds(steps['seconds'])}, " in head
    for row, part in zip(rows, steps["parts"], strict=False):
        assert format_seconds(part["seconds"]) in row
        assert "<0.1 %" in row or format_share(part["share"]) in row
        assert row.rstrip().endswith(part["phase"])
        assert ("≥" in row) is part["at_least"]
        assert ("≤" in row) is part["at_most"]
    facts = {line.split()[0]: line for line in rows_of(text, "Run")[1:]}
    if steps["rows"]:
        assert f"{steps['last']:,}, {steps['rows']:,} of them printed" in facts["Steps"]
    if steps["spread"]:
        assert f"median {format_seconds(steps['median'])}, " in steps["spread"]
        assert steps["spread"] in facts["Steps"]
    if steps["skipped"]:
        assert f"{steps['skipped']:,} skipped" in facts["Steps"]
    if steps["samples_per_second"]:
        assert f"{format_count(steps['samples_per_second'])} samples/s" in facts["Speed"]
    assert ("Loss" in facts) is (steps["loss"] is not None)
    assert f"\nRead   {count_of(told['coverage']['lines'], 'line')}" in text
    assert text.count("\nProblems   ") == bool(told["problems"])
    assert f"\nProblems   {len(told['problems'])}\n" in text or not told["problems"]
    silent = sum(
        int(n) for n in re.findall(r"^  (?:and )?(\d+) (?:more )?rules?", text, re.MULTILINE)
    )
    assert silent == len(told["abstentions"])


#: Findings whose seconds are not a cost: see `test_a_healthy_run_costs_nothing...`.
UNPRICED = ("healthy", "unaccounted-time")


def test_numbers_that_are_none_become_null() -> None:
    odd = {"a": float("nan"), "b": np.int64(3), "c": pd.NA, "d": (float("inf"), pd.NaT, None, True)}
    assert to_json(odd) == {"a": None, "b": 3, "c": None, "d": [None, None, None, True]}
    assert to_json(pd.Timestamp("2023-03-15T13:21:52Z")) == "2023-03-15T13:21:52+00:00"


OPEN = ("meta", "config", "steps.classes", "steps.bound", "coverage.patterns")
JSON_TYPES = {
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "list": (list,),
    "object": (dict,),
    "finding": (dict,),
    "any": (object,),
}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a document as docs/json.md writes it, and its value."""
    if isinstance(value, dict):
        for key, each in value.items():
            name = "*" if path in OPEN else key
            yield from leaves(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for each in value:
            yield from leaves(each, f"{path}[]")
    else:
        yield path, value


def documented() -> dict[str, tuple[type, ...]]:
    text = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z ]+) \|", text, re.MULTILINE)
    return {key: sum((JSON_TYPES[t] for t in kind.split(" or ")), ()) for key, kind in rows}


def test_every_key_of_the_document_is_described_with_its_type(
    sample_run: Sample, tmp_path: Path
) -> None:
    described = documented()
    seen: set[str] = set()
    runs = {name: sample_run(name) for name in VARIED}
    for name, text in (("trainer", TRAINER), ("bar", BAR)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        runs[name] = load(tmp_path / name)
    for name, run in runs.items():
        for key, value in leaves(document(run) | {"verdict": None}):
            if key.startswith(("meta.*", "config.*")):
                key = key[: key.index("*") + 1]  # noqa: PLW2901
            elif value == []:
                seen |= (
                    {k for k in described if k.startswith(f"{key}[]")} if key in LISTS else {key}
                )
                continue
            assert key in described, f"{name}: {key} is not in docs/json.md"
            wanted = described[key]
            assert isinstance(value, wanted), f"{name}: {key} is {value!r}"
            assert not (isinstance(value, bool) and bool not in wanted and object not in wanted)
            seen.add(key)
    assert set(described) - seen - {"findings[]", "coverage"} == set()


#: Lists of objects that a run may leave empty.
LISTS = (
    *("findings", "findings[].evidence", "findings[].advice", "abstentions"),
    *("problems", "repairs", "coverage.shapes", "steps.phases", "steps.parts"),
)
