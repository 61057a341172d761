"""Every fact of every sample log, held against what `dsprof.load` makes of it.

`sample_logs/README.md` says what each fact means. They were established without dsprof, so
a test that fails here means that the reader is wrong.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dsprof
from tests.loaded import sample

FOLDER = Path(__file__).parent.parent / "sample_logs"


@cache
def facts_of(name: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((FOLDER / f"{name}.facts.json").read_text(encoding="utf-8"))
    return told


NAMES = sorted(path.name.removesuffix(".facts.json") for path in FOLDER.glob("*.facts.json"))
#: What repairs the facts know of; others are the reader's own remarks.
KNOWN_REPAIRS = {word for name in NAMES for word in facts_of(name)["repairs"]}


def logs_with(fact: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [name for name in NAMES if fact in facts_of(name)])


def logs_without(fact: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [name for name in NAMES if fact not in facts_of(name)])


def of_steps(name: str, column: str) -> dict[int, Any]:
    """What `Run.steps` says, of the steps where it says something."""
    steps = sample(name).steps
    known = steps[steps[column].notna()]
    return {int(step): value for step, value in zip(known["step"], known[column], strict=True)}


def differences(expected: dict[int, Any], found: dict[int, Any], abs_: float = 0.0) -> list[str]:
    return [
        f"step {step}: {found.get(step)} instead of {value}"
        for step, value in expected.items()
        if step not in found or found[step] != pytest.approx(value, rel=1e-9, abs=abs_)
    ]


def test_every_sample_log_has_its_facts() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.log")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_framework_is_named(name: str) -> None:
    assert sample(name).meta.get("framework") == facts_of(name)["framework"]


@pytest.mark.parametrize("name", NAMES)
def test_the_version_is_known_as_far_as_the_log_tells(name: str) -> None:
    assert sample(name).meta.get("versions", {}).get("deepspeed") == facts_of(name)["version"]


@pytest.mark.parametrize("fact", ["world_size", "zero_stage"])
@pytest.mark.parametrize("name", NAMES)
def test_what_the_log_does_not_say_stays_unknown(name: str, fact: str) -> None:
    assert sample(name).meta.get(fact) == facts_of(name)[fact]


@logs_with("config")
def test_the_configuration_is_read(name: str) -> None:
    config, facts = sample(name).config, facts_of(name)["config"]
    assert {key: config.get(key) for key in facts} == facts


@pytest.mark.parametrize("name", NAMES)
def test_there_is_a_row_for_each_step_and_no_other(name: str) -> None:
    assert sample(name).steps["step"].tolist() == facts_of(name)["steps"]


@logs_with("loss")
def test_each_loss_is_at_its_step(name: str) -> None:
    told = {int(step): value for step, value in facts_of(name)["loss"].items()}
    assert of_steps(name, "loss") == told


@logs_without("loss")
def test_a_loss_that_only_the_script_prints_is_none(name: str) -> None:
    assert of_steps(name, "loss") == {}


@logs_with("lr")
def test_each_learning_rate_is_at_its_step(name: str) -> None:
    told = {int(step): value for step, value in facts_of(name)["lr"].items()}
    assert of_steps(name, "lr") == told


@logs_with("samples_per_second")
def test_samples_per_second_are_the_current_ones(name: str) -> None:
    told = {int(step): value for step, value in facts_of(name)["samples_per_second"].items()}
    assert differences(told, of_steps(name, "samples_per_second")) == []


@logs_with("step_seconds")
def test_the_seconds_of_a_step_are_those_printed(name: str) -> None:
    told = {int(step): value for step, value in facts_of(name)["step_seconds"].items()}
    assert differences(told, of_steps(name, "seconds"), abs_=1e-6) == []


@logs_with("phases")
def test_phases_are_seconds_of_one_optimizer_step(name: str) -> None:
    phases = sample(name).phases
    wrong = []
    for step, told in facts_of(name)["phases"].items():
        rows = phases[(phases["step"] == int(step)) & ~(phases["rank"] > 0).fillna(False)]
        rows = rows.assign(word=rows["raw"].astype("str").str.removesuffix("_microstep"))
        found = rows.drop_duplicates("word").set_index("word")["seconds"]
        wrong += [
            f"step {step}, {word}: {found.get(word)} instead of {seconds}"
            for word, seconds in told.items()
            if word not in found or found[word] != pytest.approx(seconds, abs=1e-6)
        ]
    assert wrong == []


@logs_with("classes")
def test_a_step_is_split_into_classes_without_double_counting(name: str) -> None:
    steps = sample(name).steps.set_index("step")
    found = {
        step: {word: round(float(steps.loc[int(step), word]), _digits(value))
               for word, value in told.items()}
        for step, told in facts_of(name)["classes"].items()
    }  # fmt: skip
    assert found == facts_of(name)["classes"]


def _digits(value: float) -> int:
    return len(str(value).partition(".")[2])


@logs_with("skipped")
def test_skipped_steps_are_counted_from_the_start(name: str) -> None:
    assert list(of_steps(name, "skipped").values())[-1] == facts_of(name)["skipped"]


@logs_without("skipped")
def test_a_count_of_skipped_steps_that_is_hidden_stays_unknown(name: str) -> None:
    assert of_steps(name, "skipped") == {}


@logs_with("overflows")
def test_an_overflow_counts_once_however_many_lines_told_it(name: str) -> None:
    assert sum(of_steps(name, "overflow").values()) == facts_of(name)["overflows"]


@logs_with("overflow_steps")
def test_overflows_are_at_their_steps(name: str) -> None:
    flags = of_steps(name, "overflow")
    assert [step for step, over in flags.items() if over] == facts_of(name)["overflow_steps"]


@logs_without("overflow_steps")
def test_no_overflow_is_seen_where_none_is_told(name: str) -> None:
    assert not any(of_steps(name, "overflow").values())


@logs_with("comm")
def test_collectives_are_counted_and_their_true_time_added_up(name: str) -> None:
    comm = sample(name).comm
    wrong = []
    for told in facts_of(name)["comm"]:
        alike = (comm["op"] == told["op"]) & (comm["rank"].fillna(0) == 0)
        near = (comm["bytes"] - told["bytes"]).abs() <= 1
        count, seconds = _calls(comm[alike & near])
        right = seconds == pytest.approx(told["seconds"], abs=2e-5 * told["count"])
        if count != told["count"] or not right:
            wrong.append(f"{count} calls, {seconds} s instead of {told}")
    assert wrong == []


def _calls(rows: pd.DataFrame) -> tuple[int, float | None]:
    """Calls and their seconds: of the lines, each a call, or else of the table."""
    single = rows[~rows["total"]]
    rows = single if len(single) else rows
    trusted = len(rows) and rows["suspect"].isna().all() and rows["seconds"].notna().all()
    return int(rows["count"].sum()), float(rows["seconds"].sum()) if trusted else None


@logs_with("csv")
def test_the_csv_monitor_is_read_like_a_log(name: str) -> None:
    told = facts_of(name)["csv"]
    run = dsprof.load(FOLDER / told["folder"], processes=1)
    steps = run.steps
    assert len(steps) >= told["rows"]
    per_step = told["samples_per_step"]
    wrong = []
    for word, values in told["first_and_last"].items():
        for samples, value in values.items():
            step = int(samples) // per_step + (word == "train_loss")
            found = _of_csv(run, word, step)
            if found != pytest.approx(value, rel=1e-6):
                wrong.append(
                    f"{word} at {samples} samples, step {step}: {found} instead of {value}"
                )
    assert wrong == []


def _of_csv(run: dsprof.Run, word: str, step: int) -> float | None:
    """A csv file's number at a step, in the file's own unit."""
    if word.startswith("elapsed_time_ms_"):
        rows = run.phases[run.phases["step"] == step]
        rows = rows[rows["name"] == word.removeprefix("elapsed_time_ms_")]
        return float(rows["seconds"].iloc[0]) * 1e3 if len(rows) else None
    row = run.steps[run.steps["step"] == step]
    column = {"train_loss": "loss"}.get(word, word)
    return float(row[column].iloc[0]) if len(row) else None


@pytest.mark.parametrize("name", NAMES)
def test_every_failure_is_told_where_it_stands(name: str) -> None:
    problems = sample(name).problems
    lines = (FOLDER / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
    missing = [told for told in facts_of(name)["problems"] if not _is_told(told, problems, lines)]
    assert missing == [], problems[["kind", "rank", "value", "text", "line"]].to_string()


def _is_told(told: dict[str, Any], problems: pd.DataFrame, lines: list[str]) -> bool:
    """A row of that kind, rank and value, at the lines that say so."""
    rows = problems[problems["kind"] == told["kind"]]
    rank = told.get("rank")
    rows = rows[rows["rank"].isna() if rank is None else (rows["rank"] == rank).fillna(False)]
    if "value" in told:
        rows = rows[rows["value"] == told["value"]]
    said = ["\n".join(lines[max(line - 1, 0) : line + 8]) for line in rows["line"]]
    return any(told["text"] in text for text in [*said, *rows["text"].dropna()])


@pytest.mark.parametrize("name", NAMES)
def test_the_first_failure_told_is_the_root_cause(name: str) -> None:
    problems = sample(name).problems
    causes = problems.loc[problems["root_cause"], "kind"].tolist()
    assert causes == [told["kind"] for told in facts_of(name)["problems"][:1]]


@logs_with("findings")
def test_the_rules_that_must_fire_do(name: str) -> None:
    fired = {finding.rule for finding in sample(name).findings}
    assert set(facts_of(name)["findings"]) <= fired


@pytest.mark.parametrize("name", NAMES)
def test_defects_are_met_where_they_are_and_nowhere_else(name: str) -> None:
    met = set(sample(name).repairs["name"])
    assert met & KNOWN_REPAIRS == set(facts_of(name)["repairs"])
