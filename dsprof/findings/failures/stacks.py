"""Where processes stood by the stacks that were printed of them while they hung or as one crashed,
by Python's faulthandler or by py-spy.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from dsprof.events import Kind
from dsprof.findings.evidence import whole
from dsprof.findings.facts import Facts
from dsprof.quotes import quoted
from dsprof.run.table import among, where
from dsprof.units import format_ranks

_THREAD: Final = "stack"
_NAMELESS: Final = "Stack"  #: of a thread that is printed alone
_FRAME: Final = "stack_frame"
_MARKS: Final = ("stack_process", "overdue", "signal")  #: what a dump of a process begins with
_PLACES: Final = 3  #: that are told
_LONGEST: Final = 20_000  #: rows: of what is dumped again and again, the end counts
_TEXT: Final = re.compile(r"(?P<function>.{1,200}) \((?P<path>.{1,400}):(?P<line>\d{1,9})\)")
_COLLECTIVES: Final = re.compile(r"(?:^|/)torch/distributed/distributed_c10d\.py$")
_LOADER: Final = re.compile(r"(?:^|/)torch/utils/data/dataloader\.py$")
_BATON: Final = re.compile(r"(?:^|/)torch/utils/file_baton\.py$")
_DEVICE: Final = re.compile(r"(?:^|/)torch/(?:cuda|xpu|hpu)/|(?:^|/)torch_npu/npu/")
_SYNCS: Final = ("synchronize", "wait_stream", "wait_event")
FOR_LOCK: Final = "the lock of an extension's build"
_AUTOGRAD: Final = re.compile(r"(?:^|/)torch/autograd/")
_FED: Final = re.compile(r"(?:^|/)torch/utils/data/_utils/")  #: workers, and who pins memory
_LIBRARY: Final = re.compile(
    r"(?:^|/)torch/|(?:^|/)deepspeed/(?:comm|utils)/|^<|(?:^|/)python3\.\d{1,2}/(?!(?:site|dist)-)"
)
_INSTALLED: Final = re.compile(r"^.*/(?:(?:site|dist)-packages|python3\.\d{1,2})/")
_STARTED: Final = ("_bootstrap", "Thread._bootstrap")  #: Python's threads, the outermost frame
_MAIN: Final = ("<module>", "_run_module_as_main", "_run_code")


@dataclass(frozen=True, slots=True)
class Frame:
    function: str
    path: str
    line: str

    @property
    def is_of_library(self) -> bool:
        """Whether it is PyTorch's, Python's own, or DeepSpeed's wrapper of a call."""
        top, below, _ = self.path.partition("/")
        bare = top if below else top.removesuffix(".py")  # py-spy leaves out where packages lie
        return bool(_LIBRARY.search(self.path)) or bare in sys.stdlib_module_names

    @property
    def said(self) -> str:
        file = _INSTALLED.sub("", self.path)
        file = file if file != self.path or not file.startswith("/") else file.rsplit("/", 1)[-1]
        return quoted(f"{self.function} ({file}:{self.line})", 120)


@dataclass(slots=True)
class Thread:
    """Its frames, the innermost first."""

    name: str
    row: pd.Series[Any]
    frames: list[Frame] = field(default_factory=list)

    @property
    def is_main(self) -> bool:
        named = '"MainThread"' in self.name
        return bool(self.frames) and (named or self.frames[-1].function in _MAIN)

    @property
    def is_current(self) -> bool:
        return self.name.startswith(("Current ", _NAMELESS))

    @property
    def is_of_engine(self) -> bool:
        """Whether PyTorch's engine runs it, for backward: Python did not start it."""
        return bool(self.frames) and not self.is_main and self.frames[-1].function not in _STARTED

    @property
    def call(self) -> str:
        """The collective that it is in, as the outermost frame of PyTorch's names it; else ""."""
        called = [one.function for one in self.frames if _COLLECTIVES.search(one.path)]
        return called[-1] if called else ""

    @property
    def awaited(self) -> str:
        """What else it waits for; "" if nothing is known of that."""
        if any(_LOADER.search(one.path) for one in self.frames):
            return "its data loader"
        if any(_BATON.search(one.path) for one in self.frames):
            return FOR_LOCK
        of_gpu = (one.function in _SYNCS and _DEVICE.search(one.path) for one in self.frames)
        return "its GPU" if any(of_gpu) else ""

    @property
    def own(self) -> Frame | None:
        """The innermost frame that is no library's."""
        return next((one for one in self.frames if not one.is_of_library), None)


@dataclass(slots=True)
class Dump:
    """The threads of one process, at one moment.

    Attributes:
        mark: what was printed before it, one of `_MARKS`; "" if nothing.
    """

    mark: str = ""
    threads: list[Thread] = field(default_factory=list)

    @property
    def is_of_crash(self) -> bool:
        return self.mark == "signal"

    @property
    def is_asked_for(self) -> bool:
        """Whether somebody asked for it, and neither a crash nor a timer of the script."""
        return self.mark in ("", "stack_process")

    @property
    def main(self) -> Thread | None:
        return next((one for one in self.threads if one.is_main), None)

    @property
    def decisive(self) -> Thread | None:
        """The thread that says where the process stood: one in a collective, else the main one, or
        the one that runs backward for it.
        """
        called = next((one for one in self.threads if one.call), None)
        if called or not self.main or not _AUTOGRAD.search(self.main.frames[0].path):
            return called or self.main
        return next((one for one in self.threads if one.is_of_engine and one.own), self.main)

    @property
    def rank(self) -> int | None:
        return whole(self.threads[0].row["rank"])

    @property
    def process(self) -> tuple[object, ...]:
        """What tells it from other processes: of these, only py-spy names any."""
        row, thread = self.threads[0].row, self.main or self.threads[0]
        alone = row["line"] if thread.name == _NAMELESS else None
        return str(row["source"]), self.rank, thread.name.removeprefix("Current ").lower(), alone


@dataclass(frozen=True, slots=True)
class Place:
    """Where some of the processes stood, and in which collective, if in one."""

    call: str
    said: str
    dumps: tuple[Dump, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """None where one of them is unknown."""
        ranks = [one.rank for one in self.dumps if one.rank is not None]
        return tuple(sorted(ranks)) if len(ranks) == len(self.dumps) else ()

    @property
    def who(self) -> str:
        count = len(self.dumps)
        if self.ranks:
            return format_ranks(self.ranks)
        return "1 process" if count == 1 else f"{count:,} processes"


def dumps_of(facts: Facts, segment: int) -> list[Dump]:
    """The last dump of each process of a launch, as its source prints them."""
    told = facts.run.told
    named = among(told["kind"], [Kind.METRIC, Kind.PROBLEM])
    named &= among(told["name"], [_THREAD, _FRAME, *_MARKS])
    rows = where(told, named & (told["segment"] == segment) & told["line"].notna())
    if not among(rows["name"], [_THREAD]).any():
        return []
    rows = rows.sort_values(["source", "line"], kind="stable").tail(_LONGEST)
    found: dict[tuple[object, ...], Dump] = {}
    for _, mine in rows.groupby(["source", rows["rank"].fillna(-1)], observed=True, sort=False):
        for dump in _divided(mine):
            found.pop(dump.process, None)
            found[dump.process] = dump
    return list(found.values())


def _divided(rows: pd.DataFrame) -> Iterator[Dump]:
    """The dumps among the rows of one sender."""
    dump, last = Dump(), None
    for _, row in rows.iterrows():
        if row["name"] == _FRAME:
            frame = _TEXT.fullmatch(str(row["text"]))
            if frame and dump.threads:
                dump.threads[-1].frames.append(Frame(**frame.groupdict()))
            last = row["line"]
            continue
        is_mark = row["name"] != _THREAD
        apart = last is not None and row["line"] > last + 2  # an empty line is between threads
        if dump.threads and (is_mark or apart):
            yield dump
            dump = Dump()
        if is_mark:
            dump.mark = str(row["name"])
            last = None
        else:
            dump.threads.append(Thread(str(row["text"]), row))
            last = row["line"]
    if dump.threads:
        yield dump


def places_of(dumps: Iterable[Dump]) -> list[Place]:
    """Where the processes stood; those in no collective first, then by how many."""
    found: dict[tuple[str, str], list[Dump]] = {}
    for dump in dumps:
        thread = dump.decisive
        if thread is None or any(_FED.search(one.path) for one in thread.frames):
            continue
        own = thread.own
        said = own.said if own else thread.frames[-1].said if thread.frames else ""
        if said:
            said += f", waiting for {thread.awaited}" * bool(thread.awaited and not thread.call)
            found.setdefault((thread.call, said), []).append(dump)
    places = [Place(call, said, tuple(every)) for (call, said), every in found.items()]
    return sorted(places, key=lambda one: (bool(one.call), -len(one.dumps)))


def said_of_places(places: list[Place]) -> str:
    """`rank 1 stood in load_batch (train.py:14), ranks 0 and 2 in all_reduce, called in main
    (train.py:12)`; "" of none.
    """
    said: list[str] = []
    for place in places[:_PLACES]:
        inside = f"{place.call}, called in {place.said}" if place.call else place.said
        said.append(f"{place.who} {'' if said else 'stood '}in {inside}")
    left = sum(len(one.dumps) for one in places[_PLACES:])
    return "; ".join(said) + (f"; {left:,} more elsewhere" if left else "")


def crashed_in(facts: Facts, segment: int) -> tuple[str, str]:
    """What the thread was in that crashed, and the innermost function of the script from where it
    came there: "" for what is unknown, or where several processes crashed in different places.
    """
    threads = [
        thread
        for dump in dumps_of(facts, segment)
        for thread in dump.threads
        if dump.is_of_crash and thread.is_current and thread.frames
    ]
    inner = {thread.frames[0].said for thread in threads}
    if len(inner) != 1:
        return "", ""
    owns = {own.said for thread in threads if (own := thread.own)} - inner
    return inner.pop(), owns.pop() if len(owns) == 1 else ""
