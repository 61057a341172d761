"""The line that a number leads to holds that number, or the page says how it follows."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import dsprof
from dsprof.page.model import Place
from dsprof.page.verdict import Verdict, verdict

SAMPLES = Path(__file__).parents[2] / "sample_logs"
#: Samples, and what their step time is read from.
PAGES = {
    "neox_pipeline_2023": "iter time (s)",
    "killed_rank_torchrun_0.19.8": "fwd:",
    "zero3_0.19.8": "CurrSamplesPerSec",
    "comms_verbose_0.16.9": "CurrSamplesPerSec",
    "fp16_overflow_0.19.8": "CurrSamplesPerSec",
}


@cache
def run_of(name: str) -> dsprof.Run:
    return dsprof.load(SAMPLES / f"{name}.log")


@cache
def lines_of(name: str) -> list[str]:
    return (SAMPLES / f"{name}.log").read_text(errors="replace").split("\n")


def line_at(place: Place) -> str:
    return lines_of(Path(place.source).stem)[place.line - 1]


def after(word: str, line: str) -> float:
    """The number behind a word of a line."""
    found = re.search(re.escape(word) + r"[\s:=]*([\d.]+)", line)
    assert found, f"{word} is not in {line}"
    return float(found[1])


def first_screen(name: str) -> Verdict:
    return verdict(run_of(name))


@pytest.mark.parametrize(("name", "word"), PAGES.items())
def test_the_time_of_a_step_leads_to_the_lines_it_is_read_from(name: str, word: str) -> None:
    step = first_screen(name).step
    assert step.among
    assert all(word in line_at(place) for _, place in step.among.lines)


def test_a_mean_step_is_the_mean_of_the_times_on_its_lines() -> None:
    step = first_screen("neox_pipeline_2023").step
    assert step.among
    said = [after("iter time (s)", line_at(place)) for _, place in step.among.lines]
    assert step.text == f"{np.mean(said):.2f} s"


@pytest.mark.parametrize(
    ("name", "word", "decimals"),
    [
        ("neox_pipeline_2023", "samples/sec", 2),
        ("zero3_0.19.8", "CurrSamplesPerSec", 0),
        ("comms_verbose_0.16.9", "CurrSamplesPerSec", 0),
    ],
)
def test_a_throughput_is_the_mean_of_the_rates_on_its_lines(
    name: str, word: str, decimals: int
) -> None:
    rate = dict(first_screen(name).facts)["Throughput"]
    assert rate.among
    said = [after(word, line_at(place)) for _, place in rate.among.lines]
    assert rate.text == f"{np.mean(said):,.{decimals}f} samples/s, mean"


def test_the_highest_of_rates_is_not_called_the_longest() -> None:
    rate = dict(first_screen("neox_pipeline_2023").facts)["Throughput"]
    assert rate.among
    assert [word for word, _ in rate.among.lines] == ["first, highest", "", "last"]


def test_a_step_time_that_no_line_states_says_how_it_follows() -> None:
    assert "batch size over the samples/s" in first_screen("zero3_0.19.8").judged
    assert "sum of its timers" in first_screen("killed_rank_torchrun_0.19.8").judged
    assert first_screen("neox_pipeline_2023").judged == ""  # its lines state it
