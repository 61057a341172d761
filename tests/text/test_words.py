"""Numbers and facts as short phrases, and what a log says made safe to print."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsprof.events import Severity
from dsprof.findings import Finding
from dsprof.text.words import (
    cost,
    count_of,
    gain,
    gpu_count,
    known,
    number,
    of_clocks,
    of_records,
    on_hosts,
    partly_recorded,
    plain,
    what_if,
)
from tests.findings.plants import run_of


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x1b\\", "link"),
        ("a\tb\r\nc\u2028d", "a b c d"),
        ("\u202eevil", "evil"),
        ("\x1b", ""),
        ("é × – 漢字", "é × – 漢字"),
    ],
)
def test_plain_text_is_what_a_person_would_read(said: str, left: str) -> None:
    assert plain(said) == left


@given(st.text())
def test_plain_text_is_printable_whatever_comes(said: str) -> None:
    assert plain(said).isprintable()


def test_a_gain_is_the_most_there_is_to_gain() -> None:
    assert gain((0.0, 2.05), 5.75) == "up to 2.05 s of 5.75 s per step (36 %)"
    assert gain((0.8, 1.2), 4.0) == "up to 1.20 s of 4.00 s per step (30 %)"
    assert gain((0.5, 0.5), None) == "up to 500 ms per step"
    assert gain(None, 4.0) == ""


def test_a_step_replayed_says_between_what_it_ends_or_what_it_is_at_best() -> None:
    def said(low: float) -> str:
        gain = (low, 0.111)
        found = Finding("straggler-rank", Severity.CRITICAL, "", "", gain=gain, what_if="so")
        return what_if(found, 0.412, 8)

    assert said(0.094) == "if so: 412 ms → 301 ms to 318 ms per step, 48 GPU hours a day"
    assert said(0.0) == "if so: 412 ms → 301 ms per step at best, up to 52 GPU hours a day"


def test_hours_of_gpus_are_told_only_where_there_is_a_gpu() -> None:
    size = {"kind": "config", "name": "world_size", "value": 8.0}
    held = {"kind": "memory", "name": "allocated", "bytes": 1e9, "step": 1, "rank": 0}
    assert gpu_count(run_of([size])) is None
    assert gpu_count(run_of([size, held])) == 8


def test_a_cost_says_what_is_known_of_it() -> None:
    assert cost(4.11, 0.714, 5.75) == "4.11 s of 5.75 s per step (71 %)"
    assert cost(None, 0.5, 5.75) == "50 % of a step"
    assert cost(0.25, None, None) == "250 ms per step"
    assert cost(None, None, 5.75) == ""


def test_small_words() -> None:
    assert count_of(1, "step") == "1 step"
    assert count_of(12_000, "launch", "launches") == "12,000 launches"
    assert not known(pd.NA)
    assert not known(float("nan"))
    assert number(np.float64(2.5)) == 2.5
    assert number(float("inf")) is None


def test_hosts_are_those_stated_and_of_those_that_only_print_the_least_there_are() -> None:
    assert on_hosts({"nodes": 1, "hosts": ["a"]}) == "on 1 host"
    both = {"recordings": [{"rank": 0}, {"rank": 1}], "hosts": ["a", "b"]}
    assert on_hosts({**both, "world_size": 2}) == "on 2 hosts"
    assert on_hosts({"hosts": ["a", "b"]}) == "on at least 2 hosts"
    assert on_hosts({"hosts": ["a"]}) == on_hosts({}) == ""


def test_ranks_without_recordings_may_be_on_hosts_that_nobody_named() -> None:
    one = {"recordings": [{"rank": 0}], "hosts": ["a"]}
    assert on_hosts({**one, "world_size": 1}) == "on 1 host"
    assert on_hosts({**one, "world_size": 2}) == ""
    two = {"recordings": [{"rank": 0}, {"rank": 4}], "hosts": ["a", "b"]}
    assert on_hosts({**two, "world_size": 8}) == "on at least 2 hosts"
    assert partly_recorded({**two, "world_size": 8}) == "2 of them recorded"
    assert partly_recorded({**one, "world_size": 1}) == partly_recorded({"world_size": 8}) == ""


def test_the_clock_that_is_furthest_off_is_named_and_by_how_much() -> None:
    clocks = {"a": {"ahead": 0.0, "error": 0.0}, "b": {"ahead": -0.35, "error": 0.002}}
    said = "b's is 350 ms behind a's, if both end steps at once (give or take 2.00 ms)"
    assert of_clocks({"clocks": clocks}) == said
    clocks["c"] = {"ahead": 0.1, "error": 0.002}
    assert of_clocks({"clocks": clocks}) == f"{said}; others of 3 hosts less"
    assert of_clocks({}) == ""


def test_a_clock_that_was_set_during_the_run_is_said_to_be() -> None:
    clocks = {"a": {"ahead": 0.0, "error": 0.0}, "b": {"set": -3600.0}}
    assert of_clocks({"clocks": clocks}) == "b's was set back by 1 h 00 min during the run"
    assert of_clocks({"clocks": {"a": {"set": 2.0}}}) == (
        "a's was set forward by 2.00 s during the run, or the host was suspended"
    )


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([1, 2, 3], "3 records, which steps they belong to is unknown"),
        ([1], "1 record, which step it belongs to is unknown"),
        ([2], "1 record, number 2 as printed, which step it belongs to is unknown"),
        (
            [2, 3, 5],
            "3 records, numbers 2 to 3, 5 as printed, which steps they belong to is unknown",
        ),
    ],
)
def test_records_that_are_not_all_of_those_printed_are_told_by_the_numbers_of_the_chart(
    numbers: list[int], said: str
) -> None:
    steps = pd.DataFrame({"step": numbers, "segment": 0, "engine": 0})
    assert of_records(steps) == said
    launches = pd.concat([steps, steps.assign(segment=1)])
    assert "as printed" not in of_records(launches)
