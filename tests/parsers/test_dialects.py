"""Every dialect file is held to its own samples, with all files loaded together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from dsprof import grammar
from dsprof.logs.samples import Shown, covered, faults, read_sample, strangers

GRAMMAR = grammar.builtin()
SAMPLES = list(GRAMMAR.samples)
FILES = sorted({sample.file for sample in SAMPLES})


@cache
def shown(file: str) -> list[tuple[grammar.Sample, Shown]]:
    """The samples of a dialect file, read."""
    mine = [sample for sample in SAMPLES if sample.file == file]
    return [(sample, read_sample(sample, GRAMMAR)) for sample in mine]


@pytest.mark.parametrize("file", FILES)
def test_samples_give_the_events_they_name(file: str) -> None:
    wrong = {sample.text: faults(sample, told) for sample, told in shown(file)}
    assert {text: some for text, some in wrong.items() if some} == {}


@pytest.mark.parametrize("file", FILES)
def test_lines_belong_to_one_dialect_only(file: str) -> None:
    others = {sample.text: strangers(sample, told, GRAMMAR) for sample, told in shown(file)}
    assert {text: some for text, some in others.items() if some} == {}


BAR = b"  3%|3         | 30/1000 [00:30<16:10,  1.00s/it]"


def test_what_a_line_says_is_read_behind_a_progress_bar_too() -> None:
    """All of it, but what someone left out is told on a line of its own. Some are read together;
    what of these is lost is read alone: there another one may have been the reason."""
    asked = [sample for sample in SAMPLES if b"\n" not in sample.text and sample.file != "excerpts"]
    lost = [
        sample.text
        for at in range(0, len(asked), 16)
        for sample in _lost(asked[at : at + 16])
        if _lost([sample])
    ]
    assert lost == []


def _lost(samples: Sequence[grammar.Sample]) -> list[grammar.Sample]:
    """Those of which something is not read, each behind a bar on its own line."""
    text = b"\n".join(BAR + sample.text for sample in samples)
    told = read_sample(replace(samples[0], text=text), GRAMMAR).events
    return [
        sample
        for line, sample in enumerate(samples, 1)
        if _names(sample.events) - _names([event for event in told if event["line"] == line])
    ]


def _names(events: Sequence[dict[str, Any]]) -> Counter[tuple[Any, Any]]:
    return Counter((event["kind"], event["name"]) for event in events)


def test_every_pattern_and_timer_flavour_has_a_sample() -> None:
    patterns, flavours = covered(told for file in FILES for _, told in shown(file))
    assert {p.id for p in GRAMMAR.patterns} - patterns == set()
    assert set(GRAMMAR.timers) - flavours == set()


def test_no_two_patterns_share_an_id() -> None:
    names = Counter(p.id for p in GRAMMAR.patterns)
    assert [name for name, count in names.items() if count > 1] == []
