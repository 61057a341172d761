"""The verdict says what it costs, where that is known."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from rich.console import Group

from dsprof.events import Severity
from dsprof.findings import Advice, Finding
from dsprof.findings.finding import Evidence
from dsprof.run import from_events
from dsprof.text.overview import Overview, overview
from dsprof.text.verdict import reason_section, verdict_section
from tests.text.said import (
    rendered,
)


def test_a_healthy_run_costs_nothing_and_an_untimed_one_nobody_knows_what() -> None:
    healthy = finding("healthy", share=0.9, seconds_per_step=3.6)
    assert "Cost" not in rendered(Group(*verdict_section([healthy], figures())), 80)
    untimed = finding("unaccounted-time", share=1.0, seconds_per_step=4.0)
    text = rendered(Group(*verdict_section([untimed], figures())), 80)
    assert re.search(r"Cost +unknown *\n", text)


def test_how_sure_a_verdict_without_a_cost_is_stands_under_its_own_word() -> None:
    advice = Advice("dmesg on that host", "", "look", "names the victim")
    text = rendered(Group(*verdict_section([finding("oom", advice=(advice,))], figures())), 80)
    assert [line.rstrip() for line in text.splitlines()[2:4]] == [
        "Confidence  high",
        "Do          dmesg on that host: look",
    ]
    costs = finding("slow-link", share=0.5, seconds_per_step=2.0)
    text = rendered(Group(*verdict_section([costs], figures())), 80)
    assert re.search(r"^Cost      .*, high confidence *$", text, re.MULTILINE)


def test_a_gain_that_nobody_can_tell_is_called_unknown() -> None:
    advice = Advice("bf16.enabled", "", "true", "half the bytes")
    found = finding("slow-link", share=0.5, seconds_per_step=2.0, advice=(advice,))
    assert re.search(
        r"Gain +unknown *\n", rendered(Group(*verdict_section([found], figures())), 80)
    )


def test_each_fact_of_a_proof_has_a_line_and_those_of_one_line_their_place_once() -> None:
    told = (("forward: 2 s", 7), ("backward: 4 s", 7), ("step: 1 s", 8))
    proofs = tuple(Evidence("run.log", line, text) for text, line in told)
    found = finding("compute-bound", evidence=proofs)
    text = rendered(Group(*reason_section([found])), 80).splitlines()
    assert [line.strip() for line in text[2:]] == [
        "Proof     forward: 2 s",
        "backward: 4 s",
        "run.log:7",
        "step: 1 s",
        "run.log:8",
    ]


def finding(rule: str, **more: Any) -> Finding:
    return Finding(rule, Severity.WARNING, "Something", "is so.", **more)


def figures() -> Overview:
    timed = {"kind": "metric", "name": "step_seconds", "seconds": 4.0, "step": 1, "steps": 1}
    return overview(from_events(pd.DataFrame([timed])))


@pytest.mark.parametrize(
    ("setting", "to", "verb"),
    [
        ("bf16.enabled", "true", "Change"),
        ("number of pipeline stages", "fewer", "Change"),
        ("docker --shm-size, --ipc=host", "a larger /dev/shm", "Change"),
        ("ibstat, ibv_devinfo", "ports active on both hosts", "Do"),
        ("labels of a batch", "look at them", "Do"),
    ],
)
def test_commands_and_what_is_to_be_looked_at_are_to_do_and_all_else_is_to_change(
    setting: str, to: str, verb: str
) -> None:
    assert Advice(setting, "", to, "it helps").verb == verb


def test_what_is_to_change_and_what_is_to_do_stand_apart() -> None:
    advice = (
        Advice("bf16.enabled", "false", "true", "half the bytes"),
        Advice("zero_optimization.stage", "0", "1", "a shard each"),
        Advice("the node of rank 1", "", "check it", "it may be hot"),
    )
    found = finding("slow-link", share=0.5, seconds_per_step=2.0, advice=advice)
    for section in (verdict_section([found], figures()), reason_section([found])):
        lines = rendered(Group(*section), 80).splitlines()
        told = [line for line in lines if re.search("bf16|zero_opt|the node", line)]
        assert [line[:10].strip() for line in told] == ["Change", "", "Do"]


def test_a_verdict_that_needs_no_more_words_has_no_empty_line_for_them() -> None:
    found = replace(finding("unaccounted-time"), summary="", advice=(Advice("a", "", "b", "c"),))
    lines = rendered(Group(*reason_section([found])), 80).strip().splitlines()
    assert [line.split()[0] for line in lines] == ["Why", "Change"]
