"""Read a log in a fresh process and print, as JSON, what it cost and what was found.

`python -m benchmarks.reading LOG [--processes N] [--found]`. With `--same-as COPY ...`, print how
the events of copies, of byte ranges and of a growing file differ from those of the log.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import engine
from benchmarks.cost import cpu_seconds

#: A log so short that reading it costs imports only.
WARM_UP = Path(__file__).parent / "__init__.py"
MEASURES = ("seconds", "bytes", "value", "count")


def memory(field: str) -> int:
    """VmRSS (now) or VmHWM (peak) of this process, bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def measured(log: Path, processes: int) -> tuple[pa.Table, dict[str, Any]]:
    """The events of the log and what reading them cost, imports and dialect files excluded."""
    engine.events([WARM_UP])
    before, start, clock = memory("VmRSS"), time.perf_counter(), _cpu()
    own = cpu_seconds(resource.RUSAGE_SELF)
    table = engine.events([log], processes)
    cost = {
        "cpu": _cpu() - clock,
        "own": cpu_seconds(resource.RUSAGE_SELF) - own,  # without those that shared the work
        "wall": time.perf_counter() - start,
        "peak": memory("VmHWM"),
        "imports": before,
        "frame": bytes_of(table),
        "rows": table.num_rows,
    }
    return table, cost


def bytes_of(table: pa.Table) -> int:
    """Memory that a table lies in: what its batches share counts once, as `nbytes` does not."""
    sizes: dict[int, int] = {}
    for chunk in (chunk for column in table.columns for chunk in column.chunks):
        whole = [chunk, chunk.dictionary] if pa.types.is_dictionary(chunk.type) else [chunk]
        for buffer in (buffer for array in whole for buffer in array.buffers() if buffer):
            sizes[buffer.address] = max(buffer.size, sizes.get(buffer.address, 0))
    return sum(sizes.values())


def _cpu() -> float:
    return cpu_seconds(resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def found(table: pa.Table) -> list[dict[str, Any]]:
    """Count, sums and sums times step of every (pattern, raw) of the table."""
    totals: dict[tuple[str, str], dict[str, float]] = {}
    for batch in table.select(["pattern", "raw", "step", *MEASURES]).to_batches(
        max_chunksize=1_000_000
    ):
        for row in _sums(pa.Table.from_batches([batch])):
            total = totals.setdefault((row.pop("pattern"), row.pop("raw")), {})
            for key, number in row.items():
                total[key] = total.get(key, 0) + (number or 0)
    return [{"pattern": key[0], "raw": key[1], **total} for key, total in totals.items()]


def _sums(table: pa.Table) -> list[dict[str, Any]]:
    columns = {"pattern": _plain(table["pattern"]), "raw": _plain(table["raw"])}
    step = pc.cast(table["step"], pa.float64())
    for name in MEASURES:
        values = pc.cast(table[name], pa.float64())
        columns |= {name: values, name + "_times_step": pc.multiply(values, step)}
    columns["rows"] = pa.chunked_array([pa.repeat(1, table.num_rows)])
    sums = [(name, "sum") for name in columns if name not in {"pattern", "raw"}]
    grouped = pa.table(columns).group_by(["pattern", "raw"]).aggregate(sums)
    return [
        {key.removesuffix("_sum"): cell for key, cell in row.items()} for row in grouped.to_pylist()
    ]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(column, pa.string())


def differences(log: Path, copies: list[Path]) -> dict[str, str]:
    """Way of reading → the columns in which its events differ from the plain log's."""
    plain = _comparable(engine.events([log]))
    pieces = itertools.cycle([1, 70_000, 333, 4096, 262_144, 17])
    ways = {f"{copy.suffix[1:]} copy": engine.events([copy]) for copy in copies}
    ways["byte ranges, 2 processes"] = engine.events([log], processes=2)
    ways["growing file"] = engine.events_in_pieces(log, pieces)
    return {way: _difference(plain, _comparable(table)) for way, table in ways.items()}


def _comparable(table: pa.Table) -> pa.Table:
    """Without the file's name, and with words instead of codes."""
    columns = {}
    for name in table.column_names:
        column = table[name]
        words = pa.types.is_dictionary(column.type)
        columns[name] = pc.cast(column, column.type.value_type) if words else column
    del columns["source"]
    return pa.table(columns).combine_chunks()


def _difference(plain: pa.Table, other: pa.Table) -> str:
    if plain.num_rows != other.num_rows:
        return f"{other.num_rows} rows instead of {plain.num_rows}"
    return ", ".join(name for name in plain.column_names if not plain[name].equals(other[name]))


def main() -> None:
    known = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.reading")
    known.add_argument("log", type=Path)
    known.add_argument("--processes", type=int, default=1)
    known.add_argument("--found", action="store_true", help="also what was found, by key")
    known.add_argument("--same-as", type=Path, nargs="+", help="compressed copies of the log")
    args = known.parse_args()
    if args.same_as:
        print(json.dumps(differences(args.log, args.same_as)))
        return
    table, result = measured(args.log, args.processes)
    if args.found:
        result["found"] = found(table)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
