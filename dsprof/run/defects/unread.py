"""What of its sources a run could not read, or twice: ends of lines, ends of files, copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.logs.scanning.torn import CUT_SHORT
from dsprof.logs.sources.source import FETCH_AGAIN
from dsprof.run.repairs import PLACES, Repair, Source, met
from dsprof.run.steps.phases import of_finished_steps
from dsprof.run.steps.words import words_of
from dsprof.run.table import among, categories, keys, known_rank, positions, where, whole

_LINE: Final = ("segment", "engine", "step", "rank")
_READ: Final = (*_LINE, "timers", "name")


def cut_short(events: pd.DataFrame, _: Source) -> tuple[pd.DataFrame, Repair | None]:
    """A timer line that lost its end leaves out timers: without them the step's would read 0."""
    timed = among(events["kind"], [Kind.PHASE])
    rows = where(events, timed & (events["text"] == CUT_SHORT))
    if not len(rows):
        return events, None
    step = keys(known_rank(events), "segment", "engine", "step", "rank")
    told = timed & events["timers"].notna()
    torn = step[events.index.isin(rows.index) & events["step"].notna()]
    lost = told & events["step"].notna() & np.isin(step, torn)
    text = (
        "these timer lines lost their end (the log was cut there, or another process printed "
        "into them): the timers of their steps are incomplete and were left out"
    )
    fixed = events.assign(seconds=events["seconds"].mask(lost | events.index.isin(rows.index)))
    return fixed, met("cut-short", "repair", text, rows)


def cut_head(events: pd.DataFrame, source: Source) -> tuple[pd.DataFrame, Repair | None]:
    """A step within which a log begins lacks the timers printed before: they would read 0.

    Not those beside others that stand behind their step's own line, which are all there: Megatron
    prints only timers that ran, and where all steps were skipped some of the optimizer's did not.
    """
    timed = among(events["kind"], [Kind.PHASE]) & events["seconds"].notna()
    rows = where(events[list(_READ)], timed & among(events["timers"], source.flavours))
    if not len(rows) or not len(first := _first_steps(events)):
        return events, None
    rows = of_finished_steps(_in_words(rows, source), events, source.flavours)
    behind = [name for name, flavour in source.flavours.items() if flavour.place == "after"]
    lacking = pd.concat([_lacking(rows, behind, *one) for one in first.itertuples(index=False)])
    if lacking.empty:
        return events, None
    lost = timed & (positions(_distinct(lacking, *_LINE), known_rank(events), *_LINE) >= 0)
    text = (
        f"the log begins within this step: timers of it that all later ones have, too "
        f"({', '.join(sorted(set(lacking['name'])))}), were printed before; what it holds of the "
        "step's timers is not the whole and was left out"
    )
    fixed = events.assign(seconds=events["seconds"].mask(lost))
    return fixed, met("cut-head", "repair", text, events[lost])


def _first_steps(events: pd.DataFrame) -> pd.DataFrame:
    """Segment, engine and step that a source begins with, no line of its launch before them."""
    measured = among(events["kind"], [Kind.METRIC, Kind.PHASE])
    told = events[[*_LINE[:3], "source", "kind"]]
    first = where(told, ~measured | events["step"].notna()).drop_duplicates("source")
    return _distinct(first[among(first["kind"], [Kind.METRIC, Kind.PHASE])], *_LINE[:3])


def _in_words(rows: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Timers under the one name of all their spellings, without those that say nothing."""
    words, which = words_of(rows, source.flavours)
    names = categories(which, [word.name for word in words])
    kept = np.array([not word.dropped for word in words], bool)[which]
    return where(known_rank(rows)[[*_LINE, "timers"]].assign(name=names), kept)


def _lacking(
    rows: pd.DataFrame, after: list[str], segment: int, engine: int, step: int
) -> pd.DataFrame:
    """The timers that a first step lacks and all later ones have, a row each and rank.

    Where no later one is whole: that stand behind it, of a step that is not. Flavours that stand
    `after` their step are whole where they are shown; without a step, they are of the one before.
    """
    rows = where(rows, (rows["segment"] == segment) & (rows["engine"] == engine))
    at, one = whole(rows["step"]), ["rank", "name"]
    whole_here = set(rows["timers"][at == step]) & set(after)
    later = at > step
    behind = later if later.any() else (at < 0) & ~among(rows["timers"], after)
    behind &= ~among(rows["timers"], whole_here)
    told, whose = keys(rows, *one), whole(rows["rank"])
    lacked = behind & np.isin(whose, whose[at == step]) & ~np.isin(told, told[at == step])
    if not lacked.any():
        return rows[one].iloc[:0].assign(segment=segment, engine=engine, step=step)
    rows = rows.assign(step=np.where(at < 0, step + 1, at)).astype({"name": "str"})
    steps = where(rows, behind).groupby("rank")["step"].nunique()
    times = _distinct(where(rows, lacked), *one, "step").groupby(one)["step"].size()
    always = times[times == steps.reindex(times.index, level="rank")].reset_index()
    return always.assign(segment=segment, engine=engine, step=step)


def _distinct(rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    table = rows[list(columns)].dropna().drop_duplicates()
    return table.sort_values(list(columns), ignore_index=True)


def faults(events: pd.DataFrame, facts: Mapping[str, Any]) -> Iterator[Repair]:
    """Sources that could not be read, or not to their end."""
    for source, line, why in facts.get("faults", ()):
        rows = int((events["source"] == source).sum())
        text = f"a source {why}; what follows is missing here: {FETCH_AGAIN}"
        yield Repair("not-read", "doubt", text, rows, ((source, line),) if line else ())


def wraps(facts: Mapping[str, Any]) -> Iterator[Repair]:
    """Sources whose lines were wrapped at a width."""
    for source, width, joined, first in facts.get("wrapped", ()):
        text = (
            f"this log was wrapped at {width} columns, as by a terminal or a ticket system: lines "
            "were joined with the rest that stood below them"
        )
        yield Repair("wrapped-lines", "repair", text, joined, ((source, first),))


def repetitions(facts: Mapping[str, Any]) -> Iterator[Repair]:
    """Sources that hold their lines several times over."""
    for source, lines in facts.get("doubled", ()):
        text = (
            "nearly every line of this log is there several times, with the same numbers and the "
            "same time (two handlers of one logger, or copies one behind another): the "
            "repetitions were left out"
        )
        places = tuple((source, int(line)) for line in lines[:PLACES])
        yield Repair("doubled-lines", "repair", text, len(lines), places)


def clashes(facts: Mapping[str, Any]) -> Iterator[Repair]:
    """Files that tell the same steps, of which nothing says that they are of two ranks."""
    pairs = facts.get("clashes", ())
    if pairs:
        one, other = pairs[0]
        text = (
            f"{one} and {other} both tell of the same steps, and no time or rank in them says that "
            "they are two launches, or two ranks of one: what is said of a step may mix two jobs; "
            "read them one by one, or compare them (dsprof compare)"
        )
        places = tuple((name, 1) for name in dict.fromkeys(name for pair in pairs for name in pair))
        yield Repair("files-clash", "doubt", text, len(pairs), places[:PLACES])


def jobs(facts: Mapping[str, Any]) -> Iterator[Repair]:
    """Files of other jobs than the one that is judged."""
    several = facts.get("jobs") or ((),)
    others = list(chain.from_iterable(several[1:]))
    if others:
        text = (
            f"the files are of {len(several)} jobs: {facts['jobs_differ']}; everything here is "
            "about one of them, the files of the others were left out"
        )
        places = tuple((name, 1) for name in others[:PLACES])
        yield Repair("other-jobs", "repair", text, len(others), places)


def strangers(facts: Mapping[str, Any]) -> Iterator[Repair]:
    """Files that name no step, beside one that does."""
    names = facts.get("strangers", ())
    if names:
        text = (
            "these files name no step, and neither their times nor the number of their timer lines "
            "tell which steps of the files beside them they are of: their timers are of no step, "
            "and their ranks are compared with no other"
        )
        places = tuple((name, 1) for name in names[:PLACES])
        yield Repair("steps-untold", "doubt", text, len(names), places)
