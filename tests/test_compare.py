"""Two runs compared: right answers, honest intervals, and no answer where there is none."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from rich.console import Console

from dsprof.compare import _needed, block_means, compare, differing, interval, judge
from dsprof.run import Run, from_events
from dsprof.text.difference import difference
from tests.conftest import SAMPLES, Dsprof

Floats = NDArray[np.float64]


def series(size: int, mean: float, memory: float, chance: np.random.Generator) -> Floats:
    """Step times with 5 % noise that remembers: an autoregressive process of order one."""
    noise = chance.normal(0, 0.05, size)
    for i in range(1, size):
        noise[i] += memory * noise[i - 1]
    return np.asarray(mean * (1 + noise))


def run_of(seconds: Floats, **config: float) -> Run:
    rows: list[dict[str, Any]] = [
        {"kind": "config", "name": name, "value": value} for name, value in config.items()
    ]
    rows += [
        {"kind": "metric", "name": "step_seconds", "seconds": s, "step": i + 1, "steps": 1}
        for i, s in enumerate(seconds)
    ]
    return from_events(pd.DataFrame(rows))


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [
        (1.03, 1.2, "regression"),
        (0.8, 0.97, "improvement"),
        (0.985, 1.015, "none"),
        (0.99, 1.1, "cannot tell"),
        (0.9, 1.1, "cannot tell"),
    ],
)
def test_an_interval_allows_one_answer(low: float, high: float, answer: str) -> None:
    assert judge(low, high, 0.02) == answer


@pytest.mark.parametrize(("factor", "answer"), [(1.1, "regression"), (0.9, "improvement")])
def test_a_tenth_more_or_less_is_seen(factor: float, answer: str) -> None:
    chance = np.random.default_rng(5)
    found = compare(run_of(series(200, 1, 0.3, chance)), run_of(series(200, factor, 0.3, chance)))
    assert found.answer == answer
    assert found.low is not None
    assert found.high is not None
    assert found.low < factor < found.high


def test_a_run_is_no_slower_than_itself() -> None:
    run = run_of(series(2_000, 1, 0, np.random.default_rng(1)))
    found = compare(run, run)
    assert (found.answer, found.ratio) == ("none", 1.0)


def test_two_runs_of_the_same_job_are_rarely_called_different() -> None:
    """The false alarms of 200 pairs whose step times remember each other."""
    chance = np.random.default_rng(7)
    answers = [
        judge(*interval(series(60, 1, 0.7, chance), series(60, 1, 0.7, chance))[1:], 0.02)
        for _ in range(200)
    ]
    assert answers.count("regression") + answers.count("improvement") <= 14


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    chance = np.random.default_rng(11)
    held = 0
    for _ in range(200):
        _, low, high = interval(series(150, 1, 0.5, chance), series(150, 1.05, 0.5, chance))
        held += low <= 1.05 <= high
    assert held >= 175


def test_resamples_centre_on_the_mean() -> None:
    values = np.arange(100.0)
    means = block_means(values, np.random.default_rng(3))
    assert means.mean() == pytest.approx(values.mean(), rel=0.02)
    assert means.std() > values.std() / 10  # blocks of neighbours vary more than single values


def test_noise_too_large_to_tell_says_how_many_rows_would() -> None:
    chance = np.random.default_rng(2)
    found = compare(run_of(series(30, 1, 0.5, chance)), run_of(series(30, 1.005, 0.5, chance)))
    assert found.answer == "cannot tell"
    assert found.needed is not None
    assert found.needed > 30


def test_so_near_a_border_that_no_run_would_tell_asks_for_none() -> None:
    chance = np.random.default_rng(2)
    found = compare(run_of(series(30, 1, 0.5, chance)), run_of(series(30, 1.0, 0.5, chance)))
    far = replace(found, settings={"zero_stage": (1, 2), "zero_config": ("x" * 30, "y" * 30)})
    assert _needed(1.0201, 0.9, 1.1, 0.02, 30) is None
    console = Console(file=StringIO(), width=80)
    console.print(difference(far))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"zero_stage +1 → 2", text)
    assert "In --json also: zero_config" in text
    assert "xxx" not in text


def test_settings_too_long_for_the_terminal_are_named_alone() -> None:
    found = compare(run_of(np.ones(9)), run_of(np.ones(9)))
    far = replace(found, settings={"zero_config": ("x" * 30, "y" * 30)})
    console = Console(file=StringIO(), width=80)
    console.print(difference(far))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Configured differently\nIn --json: zero_config" in text


def test_a_handful_of_rows_is_no_ground_for_an_answer() -> None:
    found = compare(run_of(np.ones(3)), run_of(np.full(3, 2.0)))
    assert (found.answer, found.why) == ("cannot tell", "3 timed rows, 8 needed of each run")


def test_seconds_of_different_things_are_not_compared() -> None:
    logged = run_of(np.ones(20))
    clock = from_events(
        pd.DataFrame(
            {
                "kind": "metric",
                "name": "loss",
                "value": 1.0,
                "step": range(1, 21),
                "at": pd.date_range("2026-01-01", periods=20, freq="2s"),
            }
        )
    )
    found = compare(logged, clock)
    assert found.answer == "cannot tell"
    assert "logged in one run and from clock in the other" in found.why


def test_other_batches_compare_by_the_sample() -> None:
    chance = np.random.default_rng(4)
    small = run_of(series(900, 1, 0, chance), train_batch_size=100)
    large = run_of(series(900, 2, 0, chance), train_batch_size=200)
    found = compare(small, large)
    assert (found.answer, found.per) == ("none", "sample")
    assert found.first.seconds == pytest.approx(0.01, rel=0.02)


def test_settings_that_differ_are_named_by_their_dotted_keys() -> None:
    first = {
        "dtype": "bf16",
        "ds_config": {"zero_optimization": {"stage": 2}},
        "odd": "<x object at 0x7f>",
    }
    second = {"dtype": "bf16", "ds_config": {"zero_optimization": {"stage": 1}, "bf16": True}}
    assert differing(first, second) == {"bf16": (None, True), "zero_optimization.stage": (2, 1)}


@pytest.mark.parametrize(
    ("names", "code", "first_words"),
    [
        (("zero2_accumulation_0.19.8", "straggler_0.19.8"), 3, "Slower"),
        (("straggler_0.19.8", "zero2_accumulation_0.19.8"), 0, "Faster"),
        (("neox_pipeline_2023", "neox_pipeline_2023"), 4, "Cannot tell"),
    ],
)
def test_the_command_answers_and_its_exit_code_agrees(
    cli: Dsprof, tmp_path: Path, names: tuple[str, str], code: int, first_words: str
) -> None:
    logs = [SAMPLES / f"{name}.log" for name in names]
    done = cli("compare", *logs, "--json", "found.json")
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith(first_words)
    told = json.loads((tmp_path / "found.json").read_text())
    assert told["schema"] == 1
    assert told["answer"] == {3: "regression", 0: "improvement", 4: "cannot tell"}[code]
