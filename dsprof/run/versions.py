"""Which DeepSpeed wrote a log: stated, or inferred from the lines its logger stands on.

The line numbers are those of `log_dist` in deepspeed/utils/logging.py and of `stop` in
deepspeed/utils/timer.py, read from DeepSpeed's history v0.3.0 to v0.19.8. A number stands
for a range of versions, so the answer is a range too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from dsprof.events import Kind
from dsprof.run.releases import LAST, Version, newest, parse
from dsprof.run.steps.zero import MEGATRONS
from dsprof.run.table import among, of_kind, where

Span = tuple[Version, Version]  # both ends included


def _spans(text: str) -> tuple[Span, ...]:
    return tuple((parse(low), parse(high)) for low, high in (s.split("-") for s in text.split()))


def _table(lines: Mapping[str, str]) -> dict[str, tuple[Span, ...]]:
    return {line: _spans(text) for line, text in lines.items()}


#: Line of the logger → the versions that have it there.
FINGERPRINTS: Final = _table(
    {
        "logging.py:60": "0.3.0-0.4.1",
        "logging.py:68": "0.4.2-0.5.6 0.7.0-0.8.0",
        "logging.py:69": "0.5.7-0.6.7",
        "logging.py:75": "0.8.1-0.8.1",
        "logging.py:77": "0.8.2-0.8.2",
        "logging.py:93": "0.8.3-0.8.3",
        "logging.py:96": "0.9.0-0.15.2",
        "logging.py:129": "0.15.3-0.15.3",
        "logging.py:128": "0.15.4-0.16.4",
        "logging.py:107": "0.16.5-0.17.6",
        "logging.py:123": "0.18.0-0.19.8",
        "timer.py:181": "0.5.7-0.6.1",
        "timer.py:193": "0.6.2-0.6.7",
        "timer.py:195": "0.6.2-0.6.7",
        "timer.py:197": "0.7.6-0.7.7",
        "timer.py:196": "0.8.0-0.8.0",
        "timer.py:198": "0.7.0-0.7.7 0.8.1-0.8.3",
        "timer.py:199": "0.9.0-0.9.2",
        "timer.py:215": "0.9.3-0.10.0",
        "timer.py:260": "0.10.1-0.14.2",
        "timer.py:258": "0.14.3-0.15.1",
        "timer.py:259": "0.14.3-0.15.1",
        "timer.py:264": "0.15.2-0.17.6 0.18.3-0.19.8",
        "timer.py:265": "0.18.0-0.18.2",
    }
)

#: Pattern → the versions that print such a line.
_SHAPES: Final = _table(
    {
        "deepspeed.throughput": "0.8.0-999",
        "deepspeed.throughput_07": "0.7.0-0.7.7",
        "deepspeed.throughput_01": "0.1.0-0.6.7",
        "deepspeed_comms.op": "0.7.0-999",
        "deepspeed_comms.summary": "0.7.0-999",
    }
)

#: DeepSpeed's timer words were shortened in 0.10.1; a loop around its engine has its own.
_WORDS: Final = _table(
    {
        "fwd": "0.10.1-999",
        "fwd_microstep": "0.10.1-999",
        "forward": "0.1.0-0.10.0",
        "forward_microstep": "0.1.0-0.10.0",
    }
)

#: Word of a line that newer versions print without the logger's header → those versions.
_PRINTED: Final = _table(
    {"fwd": "0.18.0-999", "fwd_microstep": "0.18.0-999", "max_allocated": "0.18.3-999"}
)
#: Pattern of such a line → the file of the header that older versions print before it.
_PRINTS: Final = {"deepspeed.timers": "logging.py", "deepspeed_memory.see_memory": "utils.py"}

#: What the first public releases called themselves → what they are counted as today.
_EARLY: Final = _table({"2.1": "0.1.0-0.2.0"})


def is_older(events: pd.DataFrame, version: str) -> bool:
    """Whether all that has a date was printed before `version` of DeepSpeed was made."""
    return newest(events) < parse(version)


@dataclass(frozen=True)
class Versions:
    """The DeepSpeed versions a log may come from; no spans: nothing is known."""

    spans: tuple[Span, ...] = ()
    how: str = ""  # "stated", or the evidence
    fork: bool = False  # DeeperSpeed: its numbers follow no table

    def surely(self, low: str, high: str = "999") -> bool:
        """Every version it may be lies between `low` and `high`."""
        first, last = parse(low), parse(high)
        return bool(self.spans) and all(first <= a and b <= last for a, b in self.spans)

    def maybe(self, low: str, high: str = "999") -> bool:
        """Some version it may be lies between `low` and `high`; true if nothing is known."""
        first, last = parse(low), parse(high)
        known = not self.spans or any(a <= last and first <= b for a, b in self.spans)
        return known and not self.fork

    @property
    def exact(self) -> str:
        """The one version it can be, or ""."""
        one = len(self.spans) == 1 and self.spans[0][0] == self.spans[0][1]
        return str(self) if one else ""

    def __str__(self) -> str:
        return " or ".join(_written(low, high) for low, high in self.spans)


def _written(low: Version, high: Version) -> str:
    first, last = (".".join(map(str, version)) for version in (low, high))
    if low == high:
        return first
    return f"{first} or later" if high == LAST else f"{first} to {last}"


def versions(events: pd.DataFrame, facts: Mapping[str, Any]) -> Versions:
    """What the source states, else what its line numbers, the shapes of its lines and their dates
    allow."""
    stated = of_kind(events, Kind.CONFIG, "deepspeed_version")["text"].dropna()
    exact = [str(text) for text in stated if parse(str(text)) > (0, 0, 0)]
    if exact:
        last = parse(exact[-1])
        return Versions(_EARLY.get(exact[-1], ((last, last),)), "stated")
    if among(events["name"], ["communication_percent"]).any():
        return Versions((), "percentages that only the fork DeeperSpeed prints", fork=True)
    seen = {
        line: FINGERPRINTS[line] for line in facts.get("fingerprints", {}) if line in FINGERPRINTS
    }
    patterns = set(events["pattern"].dropna().unique())
    own = among(events["pattern"], ["deepspeed.timers"]) & ~among(events["timers"], MEGATRONS)
    timers = events.loc[own, "raw"].dropna().unique()
    seen |= {name: spans for name, spans in _SHAPES.items() if name in patterns}
    seen |= {f"timer {_short(w)}": spans for w, spans in _WORDS.items() if w in timers}
    seen |= _printed(events, facts)
    met = _meet(seen.values())
    spans = _released(met, newest(events))
    how = [*seen, *["dates of releases"] * (spans != met)]
    return Versions(spans, ", ".join(how)) if spans else Versions()


def _released(spans: tuple[Span, ...], last: Version) -> tuple[Span, ...]:
    """What of these versions there was, all of them if there was none: the dates are others'."""
    return tuple((low, min(high, last)) for low, high in spans if low <= last) or spans


def _short(word: str) -> str:
    return word.removesuffix("_microstep")


def _printed(events: pd.DataFrame, facts: Mapping[str, Any]) -> dict[str, tuple[Span, ...]]:
    """Lines without the logger's header, in a log that kept the headers of others.

    They have no time, or that of a wrapper, and none of the headers is of such a line.
    """
    headers = {line.partition(":")[0] for line in facts.get("fingerprints", {})}
    if not headers:
        return {}
    rows = where(events, among(events["pattern"], _PRINTS) & among(events["raw"], _PRINTED))
    lost = [pattern for pattern, file in _PRINTS.items() if file not in headers]
    no_header = rows["at"].isna() | rows["pattern"].isin(lost)
    bare = no_header.groupby(rows["raw"].astype("str")).all()
    return {
        f"{_short(word)} without a header": _PRINTED[word] for word in map(str, bare.index[bare])
    }


def _meet(all_spans: Iterable[tuple[Span, ...]]) -> tuple[Span, ...]:
    """The versions that fit every piece of evidence; none if they contradict each other."""
    met: tuple[Span, ...] | None = None
    for spans in all_spans:
        common = [
            (max(a, c), min(b, d))
            for a, b in (met or spans)
            for c, d in spans
            if max(a, c) <= min(b, d)
        ]
        if met is not None and not common:
            return ()
        met = tuple(common)
    return met or ()
