"""Rows of a recording as the hook wrote them, by the layout alone: an oracle beside the reader."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from dsprof.events import CLASSES
from dsprof.recording import RowKind, layout


class Span(NamedTuple):
    path: str
    step: int
    micro: int
    begin: int
    length: int
    engine: int
    gpu: int
    gpu_begin: int


class Collective(NamedTuple):
    path: str  # the phase it blocked
    op: str
    group: str
    step: int
    micro: int
    begin: int
    wait: int
    blocked: int
    size: int
    calls: int
    engine: int
    flags: int


class Step(NamedTuple):
    step: int
    micros: int
    begin: int
    length: int
    classes: tuple[float, ...]
    engine: int


class Value(NamedTuple):
    name: str
    step: int
    value: float
    text: str
    engine: int


@dataclass
class Rows:
    header: dict[str, Any]
    spans: list[Span] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    metrics: list[Value] = field(default_factory=list)
    memory: list[Value] = field(default_factory=list)
    problems: list[Value] = field(default_factory=list)
    gpu: list[Value] = field(default_factory=list)
    config: dict[str, float | str] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)  # of each path
    ended: bool = False

    @property
    def unseen(self) -> float:
        """Collectives that PyTorch counts and the hook did not see; before 2.8 it counts none of
        gloo's, and nothing is said of them."""
        version = self.header["versions"]["torch"].split(".")
        if "collectives_issued" not in self.config and tuple(map(int, version[:2])) < (2, 8):
            return 0.0
        return float(self.config["collectives_issued"]) - float(self.config["collectives_seen"])

    @property
    def usual_wait(self) -> float:
        """Seconds that collectives block the median step, which no single hiccup makes longer."""
        waits = dict.fromkeys((row.step for row in self.steps), 0)
        for row in self.collectives:
            if row.step in waits:
                waits[row.step] += row.blocked
        return median(waits.values()) * 1e-9

    def metric(self, name: str) -> dict[int, float]:
        return {row.step: row.value for row in self.metrics if row.name == name}


def read(path: Path) -> Rows:
    """Every whole row of one file."""
    data = path.read_bytes()
    header = layout.parse_header(data, str(path))
    rows = Rows(header.meta)
    names: dict[int, tuple[str, int]] = {0: ("", 0)}
    pieces: dict[int, bytes] = {}
    for row in _rows(data[header.rows :]):
        kind = row[0]
        if not kind:  # what follows is being stored, or nothing
            break
        if kind == RowKind.TEXT:
            _, used, class_, number, parent, _, _, piece = layout.TEXT.unpack(row)
            pieces[number] = pieces.get(number, b"") + piece[:used]
            names[number] = (pieces[number].decode(), parent)
            rows.classes[_path(names, number)] = CLASSES[class_ - 1] if class_ else ""
        else:
            _READ.get(kind, _skip)(rows, names, row)
    return rows


def folder(path: Path) -> list[Rows]:
    """One `Rows` a file, by rank; at least one, for what is asked of each would hold of none."""
    found = [read(file) for file in sorted(path.glob("*.dsprof"))]
    assert found, f"nothing was recorded in {path}"
    return found


def in_flight(path: Path) -> tuple[str, int]:
    """The operation the process was in, and its number."""
    word, _, _ = struct.unpack_from("<3Q", path.read_bytes(), layout.CELL)
    return _named(path, word), word >> layout.NAME_BITS


def last_phase(path: Path) -> str:
    """`data` of a process that is in that phase, `behind data` if that was the last one."""
    _, _, word = struct.unpack_from("<3Q", path.read_bytes(), layout.CELL)
    return ("behind " if word & layout.OVER else "") + _named(path, word)


def _named(path: Path, word: int) -> str:
    """The name that the low bits of a word of the cell stand for; "" if none."""
    names: dict[int, str] = {}
    data = path.read_bytes()
    for row in _rows(data[layout.parse_header(data, "").rows :]):
        if row[0] == RowKind.TEXT:
            _, used, _, number, _, _, _, piece = layout.TEXT.unpack(row)
            names[number] = piece[:used].decode()
    return names.get(word & (1 << layout.NAME_BITS) - 1, "")


def _rows(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data) - layout.ROW + 1, layout.ROW):
        yield data[start : start + layout.ROW]


def _path(names: dict[int, tuple[str, int]], number: int) -> str:
    text, parent = names[number]
    return f"{_path(names, parent)}/{text}" if parent else text


def _span(rows: Rows, names: Any, row: bytes) -> None:
    _, engine, name, step, micro, begin, length, gpu, _, gpu_begin = layout.SPAN.unpack(row)
    rows.spans.append(Span(_path(names, name), step, micro, begin, length, engine, gpu, gpu_begin))


def _collective(rows: Rows, names: Any, row: bytes) -> None:
    (_, flags, engine, name, step, _, begin, wait, blocked, _, size, group, count, micro
     ) = layout.COLLECTIVE.unpack(row)  # fmt: skip
    path, _, op = _path(names, name).rpartition("/")
    rows.collectives.append(
        Collective(
            path, op, names[group][0], step, micro, begin, wait, blocked, size, count, engine, flags
        )
    )


def _step(rows: Rows, _names: Any, row: bytes) -> None:
    _, engine, step, micros, begin, length, *classes = layout.STEP.unpack(row)
    rows.steps.append(Step(step, micros, begin, length, tuple(classes), engine))


def _value(rows: Rows, names: Any, row: bytes) -> None:
    kind, _, engine, name, step, text, _, value = layout.VALUE.unpack(row)
    found = Value(_path(names, name), step, value, names[text][0], engine)
    if kind == RowKind.CONFIG:
        rows.config[found.name] = found.text or value
    else:
        {RowKind.METRIC: rows.metrics, RowKind.MEMORY: rows.memory,
         RowKind.PROBLEM: rows.problems, RowKind.GPU: rows.gpu}[kind].append(found)  # fmt: skip


def _end(rows: Rows, _names: Any, _row: bytes) -> None:
    rows.ended = True


def _skip(_rows: Rows, _names: Any, _row: bytes) -> None:
    """Clocks and kinds that the hook does not write."""


_READ: dict[int, Callable[[Rows, Any, bytes], None]] = {
    RowKind.SPAN: _span,
    RowKind.COLLECTIVE: _collective,
    RowKind.STEP: _step,
    RowKind.METRIC: _value,
    RowKind.MEMORY: _value,
    RowKind.PROBLEM: _value,
    RowKind.GPU: _value,
    RowKind.CONFIG: _value,
    RowKind.END: _end,
}
