"""Every dialect file is held to its own samples, with all files loaded together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dsprof import grammar
from dsprof.logs.samples import covered, faults, read_sample, strangers

GRAMMAR = grammar.builtin()
SAMPLES = list(GRAMMAR.samples)


def _label(sample: grammar.Sample) -> str:
    return f"{sample.file}: {sample.text[:60].decode('utf-8', 'replace')}"


@pytest.mark.parametrize("sample", SAMPLES, ids=_label)
def test_a_sample_gives_the_events_it_names(sample: grammar.Sample) -> None:
    assert faults(sample, GRAMMAR) == []


@pytest.mark.parametrize("sample", SAMPLES, ids=_label)
def test_a_line_belongs_to_one_dialect_only(sample: grammar.Sample) -> None:
    assert strangers(sample, GRAMMAR) == set()


BAR = b"  3%|3         | 30/1000 [00:30<16:10,  1.00s/it]"


def test_what_a_line_says_is_read_behind_a_progress_bar_too() -> None:
    """All of it, but what someone left out is told on a line of its own."""
    lost = [
        sample.text
        for sample in SAMPLES
        if b"\n" not in sample.text
        and sample.file != "excerpts"
        and _names(sample.events)
        - _names(read_sample(replace(sample, text=BAR + sample.text), GRAMMAR))
    ]
    assert lost == []


def _names(events: Sequence[dict[str, Any]]) -> Counter[tuple[Any, Any]]:
    return Counter((event["kind"], event["name"]) for event in events)


def test_every_pattern_and_timer_flavour_has_a_sample() -> None:
    patterns, flavours = covered(GRAMMAR)
    assert {p.id for p in GRAMMAR.patterns} - patterns == set()
    assert set(GRAMMAR.timers) - flavours == set()


def test_no_two_patterns_share_an_id() -> None:
    names = Counter(p.id for p in GRAMMAR.patterns)
    assert [name for name, count in names.items() if count > 1] == []
