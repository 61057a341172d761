"""Phases of one optimizer step, whatever the source sums over, with nothing counted twice.

A log states the same second several times: `fwd_microstep` is part of `fwd`, `bwd_inner` of `bwd`,
and `comms` includes its own parts and a piece of `step`. Here every timer is converted to one
optimizer step, the best of its spellings is kept, and `self_seconds` is what its children do not
explain. The self seconds of a step add up to the time that its timers cover.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.events import Class, Kind
from dsprof.grammar import TimerFlavour
from dsprof.run.ended import ended_by_process
from dsprof.run.steps.calls import UNDIVIDED, divided, logged, with_scalars
from dsprof.run.steps.gaps import gaps
from dsprof.run.steps.words import Word, words_of
from dsprof.run.table import (
    Codes,
    Numbers,
    among,
    categories,
    greatest,
    keys,
    known_rank,
    numbers,
    positions,
    runs,
    where,
    whole,
)

COLUMNS: Final = (
    "segment", "engine", "step", "rank", "name", "raw", "parent", "class",
    "seconds", "self_seconds", "count", "mixed", "source", "line",
)  # fmt: skip

#: The columns of the events that phases are made from.
_READ: Final = (
    "segment", "engine", "step", "steps", "rank", "name", "raw", "timers",
    "seconds", "count", "source", "line",
)  # fmt: skip
_KEPT: Final = ("segment", "engine", "step", "rank", "raw", "source", "line")

_WORDS: Final = ("name", "parent", "class")

#: Timers that do not sum over whole steps.
_APART: Final = ("micro", "mean")

#: Classes that the self time of a timer cannot have if the timer includes communication.
BLENT: Final = (Class.COMPUTE, Class.OPTIMIZER)

#: Timers inside another one may exceed it through rounding: by DIGIT seconds each, or by this
#: share.
DIGIT: Final = 1e-5
INEXACT: Final = 0.01

#: The quantile of the steps, by the micro-batches they show, that is taken to show all of them.
MOSTLY: Final = 0.9

#: Metrics that are printed when a step has ended.
CLOSING: Final = ("loss", "lr", "skipped", "step_seconds", "samples_per_second")


def phases(
    events: pd.DataFrame,
    flavours: Mapping[str, TimerFlavour],
    *,
    accumulation: int | None = None,
    mixed: frozenset[str] = frozenset(),
) -> pd.DataFrame:
    """One row per phase, step and rank, in seconds of one optimizer step.

    Args:
        events: tidy events, repaired.
        flavours: `[[timers]]` by name.
        accumulation: micro-batches per optimizer step, if known.
        mixed: timers that hold compute and communication unseparated (ZeRO-3). Their self time has
            no known class and is marked in the column `mixed`; if the calls of the step are logged,
            these divide all of it together (see `UNDIVIDED`).

    Timers inside another one that take longer than it contradict it: its self time is then unknown.
    A timer that is missing in its line, although similar lines have it, gets a row without seconds,
    and the self time of its parent is unknown, too.
    """
    timed = among(events["kind"], [Kind.PHASE]) & events["step"].notna() & events["seconds"].notna()
    rows = of_finished_steps(where(events[list(_READ)], timed), events, flavours)
    words, which = words_of(rows, flavours)
    kept = np.array([not word.dropped for word in words], bool)[which]
    rows, which = where(rows, kept), which[kept]
    if (numbers(rows["steps"]) == 0).any():
        kept = _of_turns(rows, words, which)
        rows, which = where(rows, kept), which[kept]
    names = _name_codes(words)
    span = keys(known_rank(rows), "segment", "engine", "step", "rank")
    timer = span * max(len(words), 1) + names[which]
    if len(kept := _not_of_others(rows, words, which, timer)) < len(rows):
        rows, which, span, timer = rows.iloc[kept], which[kept], span[kept], timer[kept]
    blank = gaps(rows, words, which, names, span)
    batches = _usual_batches(words, which, timer, accumulation)
    best = _best_spelling(words, which, timer)
    rows, which, timer = where(rows, best), which[best], timer[best]
    found = _per_step(rows, words, which, timer, accumulation=accumulation, usual=batches)
    if len(blank):
        found = pd.concat([found[~found["timer"].isin(blank["timer"])], blank])
        found = found.sort_values("timer", ignore_index=True)
    return _finish(_nest(found, words), mixed, logged(events))


def of_finished_steps(
    rows: pd.DataFrame,
    events: pd.DataFrame,
    flavours: Mapping[str, TimerFlavour],
    *,
    all_told: bool = False,
) -> pd.DataFrame:
    """Drop the timers of a step that the end of the log cut off.

    `all_told`: each process marks the ends of each engine's steps. An engine that ends no step then
    has none, like a model that is only used for inference.
    """
    closing = [name for name, flavour in flavours.items() if flavour.place == "end"]
    ends = among(events["timers"], closing) | among(events["name"], CLOSING)
    ends &= events["step"].notna().to_numpy()
    told = where(events[["segment", "engine", "step"]], ends)
    told = told.iloc[runs(*(whole(told[name]) for name in told))]
    table = told.iloc[greatest(told, "segment", "engine", "step")]
    place = positions(table, rows, "segment", "engine")
    until = np.append(numbers(table["step"]), np.nan)[place]
    if all_told:
        until[np.isnan(until)] = 0
        until = np.fmin(until, ended_by_process(rows, events))
    return where(rows, ~(numbers(rows["step"]) > until))


def _of_turns(rows: pd.DataFrame, words: list[Word], which: Codes) -> npt.NDArray[np.bool_]:
    """Which rows show best where the time of a turn went, if engines inside it print timers.

    A turn may have fewer micro-batches than a step of its engines, whose timers then sum over
    several turns. Timers of micro-batches show which turn they belong to.
    """
    span = keys(known_rank(rows), "segment", "engine", "step", "rank")
    timer = span * max(len(words), 1) + _name_codes(words)[which]
    part = numbers(rows["steps"]) == 0
    micro = part & np.array([word.sums == "micro" for word in words], bool)[which]
    rough = np.array([word.rough for word in words], bool)[which]
    worse = (part & ~micro & np.isin(timer, timer[micro])) | (rough & np.isin(span, span[part]))
    kept: npt.NDArray[np.bool_] = ~worse
    return kept


def _not_of_others(rows: pd.DataFrame, words: list[Word], which: Codes, timer: Codes) -> Codes:
    """Places of the rows without those that name no rank beside one of rank 0 for the same timer
    and step: they are of another rank, or tell it again.

    A micro-batch is kept: its line may have lost its prefix, and the others lack it.
    """
    unnamed = rows["rank"].isna().to_numpy()
    if not unnamed.any() or unnamed.all():
        return np.arange(len(rows))
    micro = np.array([word.sums == "micro" for word in words], bool)[which]
    return np.flatnonzero(~(unnamed & ~micro & np.isin(timer, timer[~unnamed])))


def _best_spelling(words: list[Word], which: Codes, timer: Codes) -> npt.NDArray[np.bool_]:
    spelling = np.array([word.spelling for word in words], np.int64)[which]
    if not len(spelling) or (spelling == spelling[0]).all():
        return np.ones(len(spelling), bool)
    least = pd.Series(spelling).groupby(timer).transform("min").to_numpy()
    best: npt.NDArray[np.bool_] = spelling == least
    return best


def _per_step(
    rows: pd.DataFrame,
    words: list[Word],
    which: Codes,
    timer: Codes,
    *,
    accumulation: int | None,
    usual: int,
) -> pd.DataFrame:
    """Convert rows of one timer and step to one optimizer step: their mean, weighted by steps.

    Parts of a step (of turns in which engines make several steps: `steps` is 0) are summed.
    Micro-batches count if there are as many as `usual`; otherwise lines were lost, and the time is
    unknown.
    """
    micro, mean = (np.array([w.sums == kind for w in words], bool)[which] for kind in _APART)
    steps = numbers(rows["steps"].fillna(1))
    part = steps == 0
    micro &= ~part
    covered = np.where(micro | part, 0.0, np.maximum(steps, 1.0))
    seconds = numbers(rows["seconds"])
    order = np.argsort(timer, kind="stable")
    heads = runs(timer[order])
    first = order[heads]
    if len(first) < len(order):  # the longest of several rows represents them all
        first = np.lexsort((-seconds, timer))[heads]

    def total(values: Numbers) -> Numbers:
        return np.add.reduceat(values[order], heads) if len(heads) < len(order) else values[order]

    calls = np.where(micro | part, 1.0, numbers(rows["count"]))
    told = np.isfinite(calls)
    calls = np.where(total(told * 1.0) > 0, total(np.where(told, calls, 0.0)), np.nan)
    batches = total(micro * 1.0)
    steps_of_micro = np.maximum(1.0, np.round(batches / (accumulation or np.inf)))
    shown = pd.Series(batches).groupby(timer[first] // max(len(words), 1)).transform("max")
    steps_of_micro[shown.to_numpy() < usual] = np.nan
    per = np.where(batches > 0, steps_of_micro, np.maximum(total(covered), 1.0))
    found = rows[list(_KEPT)].take(first)
    return found.reset_index(drop=True).assign(
        timer=timer[first],
        word=which[first],
        seconds=total(np.where(mean, seconds * covered, seconds)) / per,
        count=calls / per,
    )


def _usual_batches(words: list[Word], which: Codes, timer: Codes, accumulation: int | None) -> int:
    """Micro-batches per step as shown by its lines, if none is lost: at least a tenth of the steps
    show that many. 0 if there are no such lines.
    """
    micro = np.array([word.sums == "micro" for word in words], bool)[which]
    if not micro.any():
        return 0
    counts = pd.Series(timer[micro]).value_counts()
    shown = counts.groupby(counts.index // max(len(words), 1)).max().to_numpy()
    usual = int(np.quantile(shown, MOSTLY, method="lower"))
    told = accumulation is not None and bool((shown >= accumulation).any())
    return max(usual, accumulation) if told and accumulation else usual


def _nest(found: pd.DataFrame, words: list[Word]) -> pd.DataFrame:
    """Add `name`, `class`, `parent`, `self_seconds`. The rows of `found` are sorted by timer."""
    word = found["word"].to_numpy()
    timer = found["timer"].to_numpy()
    code = {w.name: i for w, i in zip(words, _name_codes(words), strict=True)}
    seconds = found["seconds"].to_numpy()
    parent = first_present(timer, word, [w.parents for w in words], code)
    inside = parent >= 0
    explained = np.bincount(parent[inside], seconds[inside], minlength=len(found))
    kids = np.bincount(parent[inside], minlength=len(found))
    possible = explained <= (1 + INEXACT) * seconds + DIGIT * (kids + 1)
    own = np.where(possible, np.clip(seconds - explained, 0.0, None), np.nan)
    names = [w.name for w in words]
    found = found.assign(
        name=categories(word, names),
        parent=categories(np.where(inside, word[parent], -1), names),
        self_seconds=own,
    )
    found["class"] = categories(word, [w.class_ for w in words])
    return _split_overlaps(found, first_present(timer, word, [w.overlap for w in words], code))


def _name_codes(words: list[Word]) -> Codes:
    codes, _ = pd.factorize(np.array([word.name for word in words], dtype=object))
    return codes.astype(np.int64)


def first_present(
    timer: Codes, word: Codes, candidates: list[tuple[str, ...]], code: Mapping[str, int]
) -> Codes:
    """For each row, the row of its first candidate in the same step and rank, or -1."""
    size = max(len(candidates), 1)
    place = np.full(len(timer), -1, np.int64)
    for depth in range(max(map(len, candidates), default=0)):
        wanted = np.array([code.get(c[depth], -1) if depth < len(c) else -1 for c in candidates])
        target = wanted[word]
        rows = np.flatnonzero((target >= 0) & (place < 0))
        sought = timer[rows] - timer[rows] % size + target[rows]
        at = np.minimum(np.searchsorted(timer, sought), len(timer) - 1)
        hit = timer[at] == sought
        place[rows[hit]] = at[hit]
    return place


def _split_overlaps(found: pd.DataFrame, place: Codes) -> pd.DataFrame:
    """Move self time that a second phase also includes into a phase of its own, once.

    `place` is for each row the row of that second phase, or -1.
    """
    rows = np.flatnonzero(place >= 0)
    if not len(rows):
        return found
    own: Numbers = found["self_seconds"].to_numpy(copy=True)
    target = place[rows]
    shared = np.minimum(own[rows], own[target])
    own[rows] -= shared
    np.subtract.at(own, target, shared)
    found = found.astype(dict.fromkeys(_WORDS, "object"))
    inner = found["name"].to_numpy()[target]
    outer = found["parent"].to_numpy()[target]
    extra = found.iloc[rows].assign(
        name=[
            f"{name}_in_{top or place}"
            for name, top, place in zip(found["name"].iloc[rows], outer, inner, strict=True)
        ],
        parent=inner,
        seconds=shared,
        self_seconds=shared,
        count=np.nan,
    )
    whole_table = pd.concat([found.assign(self_seconds=own), extra[shared > 0]])
    whole_table[list(_WORDS)] = whole_table[list(_WORDS)].astype("str").astype("category")
    return whole_table.sort_values("timer", kind="stable", ignore_index=True)


def _finish(found: pd.DataFrame, mixed: frozenset[str], calls: pd.DataFrame) -> pd.DataFrame:
    found["mixed"] = among(found["name"], mixed) & among(found["class"], BLENT)
    classes = [*found["class"].cat.categories, str(Class.OTHER), UNDIVIDED]
    codes = np.where(found["mixed"], len(classes) - 2, found["class"].cat.codes)
    if len(calls):
        codes[found["mixed"].to_numpy() & divided(found, calls)] = len(classes) - 1
        found["class"] = categories(codes, classes)
        return with_scalars(found, calls)[list(COLUMNS)]
    found["class"] = categories(codes, classes)
    return found[list(COLUMNS)]


def contradictions(found: pd.DataFrame) -> pd.DataFrame:
    """Phases that take less time than their parts, whose names are in `inside`."""
    odd = found[found["self_seconds"].isna() & found["seconds"].notna()]
    if not len(odd):
        return odd.assign(inside="")
    one = ["segment", "engine", "step", "rank"]
    names = found[[*one, "parent", "raw", "seconds"]].astype({"parent": "object", "raw": "object"})
    names = names.rename(columns={"parent": "name", "raw": "inside", "seconds": "part"})
    held = odd.astype({"name": "object"}).merge(names, on=[*one, "name"])
    by = held.groupby([*one, "name"], dropna=False)
    told = by.agg(
        raw=("raw", "first"), source=("source", "first"), line=("line", "first"),
        inside=("inside", lambda words: " and ".join(map(str, words))),
        known=("part", lambda parts: parts.notna().all()),
    )  # fmt: skip
    return told[told["known"]].reset_index()
