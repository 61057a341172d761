"""How long took what a source counts without numbering steps, by the time stamps of its lines."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import pandas as pd

from dsprof.events import Kind
from dsprof.findings.thresholds import SLOWDOWN_CRITICAL
from dsprof.run.steps.bars import LEAST
from dsprof.run.steps.pauses import RARE
from dsprof.run.table import among, of_kind
from dsprof.units import format_seconds, format_share

#: What is counted, and the patterns of its lines: of a script's own loop, or DeepSpeed's.
_TURNS: Final = {
    "A turn of the loop": r"loops\.(?:plain|plain_words|slam_llm|minimind|turn_of_epoch|wenet)"
    r"|icefall\.batch\w*|json_lines\.turn",
    "A micro-step": r"deepspeed\.throughput\w*",
}
#: In the names of events that show an evaluation or a save.
_ASIDE: Final = re.compile("(?i)eval|valid|checkpoint")
_NOT_STATED: Final = "; whether it is an optimizer step is not stated"
_FEW: Final = 0.25  #: of all intervals, that may be far longer than the others
_PART: Final = 0.1  #: of the time, that is told beside the turns
_OF_BESIDE: Final = (
    "Whether a turn is an optimizer step is not stated, nor what passes so seldom and for so long: "
    "evaluations and saves do. "
)
_CUT: Final = 2  #: times as many turns as usual between two lines: a line is missing
_OF_QUARTER: Final = 2  #: lines that a quarter of them must have for its pace to be told


class Turns(NamedTuple):
    """What the time stamps tell of them, in words."""

    mean: str  #: how long one took, and what else passed between two lines
    pace: str  #: whether they became slower; "" or a sentence with a blank behind it
    unstated: str  #: what no line says, behind a semicolon; "" if `pace` says so


def clocked_turns(events: pd.DataFrame) -> Turns | None:
    """None if the time stamps do not tell how long a turn took."""
    what, turns = _first_known(events)
    if turns.empty:
        return None
    beside = _beside(turns)
    more = bool(beside.gt(0).any())
    pace = _pace(turns.assign(seconds=turns["seconds"] - beside))
    if more:
        return Turns(_mean(what, turns, beside), _OF_BESIDE + pace, "")
    return Turns(_mean(what, turns, beside), pace, _NOT_STATED)


def _mean(what: str, turns: pd.DataFrame, beside: pd.Series[float]) -> str:
    out, (many, seconds) = beside.gt(0), turns.sum()
    took = f"{what} took {format_seconds((seconds - beside.sum()) / many)} in the mean of"
    if not out.any():
        return f"{took} {int(many):,}"
    times, each = int(out.sum()), format_seconds(beside[out].mean())
    passed = f"{times:,} times {each} each" if times > 1 else f"once {each}"
    return (
        f"{took} {int(many):,}; {passed} more passed between two of its lines, "
        f"{format_share(beside.sum() / seconds)} of the time"
    )


def _beside(turns: pd.DataFrame) -> pd.Series[float]:
    """Seconds of each interval that are of no turn, as where the loop evaluates: it is far beyond
    the usual, and few are. None where they are hardly any part of the time."""
    pace = turns["seconds"] / turns["turns"]
    longer = (turns["seconds"] - pace.median() * turns["turns"]).where(pace > RARE * pace.median())
    found = longer.fillna(0.0)
    out, in_all = found.sum(), turns["seconds"].sum()
    told = out >= _PART * in_all and in_all - out >= LEAST  # else lines were held back and stamped
    return found if told and found.gt(0).mean() <= _FEW else found * 0.0


def _pace(turns: pd.DataFrame) -> str:
    """The last quarter of them beside the first."""
    quarter = len(turns) // 4
    if quarter < _OF_QUARTER:
        return ""
    first, last = (
        part["seconds"].sum() / part["turns"].sum()
        for part in (turns.head(quarter), turns.tail(quarter))
    )
    if last < (1 + SLOWDOWN_CRITICAL) * first:
        return ""
    return (
        f"It became slower: {format_seconds(first)} each in the first quarter of them, "
        f"{format_seconds(last)} in the last. "
    )


def _first_known(events: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """What is counted for long enough to tell its pace, and its turns; no turns if nothing is."""
    for what, pattern in _TURNS.items():
        turns = _clocked(events, pattern)
        if len(turns) and turns["seconds"].sum() >= LEAST:
            return what, turns
    return "", pd.DataFrame({"turns": [], "seconds": []})


def _clocked(events: pd.DataFrame, pattern: str) -> pd.DataFrame:
    """From one line that counts turns to the next how many there were, and the seconds between: of
    whoever printed most. An epoch may begin to count anew. Turns among which an evaluation or a
    save lies are left out."""
    others = [name for name in events["name"].dropna().unique() if _ASIDE.search(str(name))]
    told = events.assign(aside=among(events["name"], others).cumsum())
    rows = of_kind(told, Kind.METRIC, "micro_step").dropna(subset=["at", "value"])
    rows = rows[rows["pattern"].astype("str").str.fullmatch(pattern)]
    printer = [rows[name].astype("object").fillna("") for name in ("segment", "source", "rank")]
    counted = rows["value"].groupby(printer).diff()
    passed = rows["at"].groupby(printer).diff().dt.total_seconds()
    aside = rows["aside"].groupby(printer).diff()
    on = (counted > 0) & (passed >= 0) & (aside == 0)
    turns = pd.DataFrame({"turns": counted[on], "seconds": passed[on]})
    if turns.empty:
        return turns
    by = pd.Series([*zip(*(one[on] for one in printer), strict=True)], turns.index)
    return _without_cuts(turns[by == turns["turns"].groupby(by).sum().idxmax()])


def _without_cuts(turns: pd.DataFrame) -> pd.DataFrame:
    """Without intervals from which lines are missing and that took far longer than the others:
    what passed there besides is not known."""
    whole = turns["turns"] < _CUT * turns["turns"].median()
    pace = turns["seconds"] / turns["turns"]
    return turns[whole | (pace <= RARE * pace[whole].median())]
