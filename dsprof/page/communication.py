"""Communication by operation and message size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from dsprof.charts import bandwidths, ceiling, comm_sizes, limit_of
from dsprof.page import words
from dsprof.page.model import Cell, Chart, Place, Section, Table
from dsprof.units import format_bandwidth, format_bytes, format_count

if TYPE_CHECKING:
    from dsprof.run import Run

ROWS = 200  #: of the table


def comm_section(run: Run) -> Section:
    """Operations by message size."""
    title = "Communication by operation and size"
    if run.comm.empty:
        why = (
            "No line tells of single communication calls. DeepSpeed prints them with "
            '"comms_logger": {"enabled": true}; a recording has them always.'
        )
        return Section("communication", title, why=why)
    sizes = comm_sizes(run.comm, max(1, run.comm["step"].nunique()))
    best = ceiling(sizes, run.meta.get("link_bytes_per_second"))
    table = _comm_table(sizes, best[0] if best else None)
    figure = bandwidths(sizes, best)
    lead = "Mean of one rank and one step. Bus bandwidth as nccl-tests defines it."
    if best:
        lead += f" The link's ceiling is {format_bandwidth(best[0])}, {best[1]}."
    if figure is None:
        return Section("communication", title, lead=lead, tables=[table])
    label = "Bus bandwidth of each operation over message size; larger marks cost more time."
    return Section(
        "communication",
        title,
        lead=lead,
        charts=[Chart("communication", figure, label)],
        tables=[table],
    )


def _comm_table(sizes: pd.DataFrame, best: float | None) -> Table:
    widest = float(sizes["seconds"].max()) or 1.0
    rows = []
    for _, row in sizes.head(ROWS).iterrows():
        rows.append(
            [
                Cell(str(row["op"])),
                Cell(format_bytes(row["bytes"]) if words.known(row["bytes"]) else "–"),
                Cell(format_count(round(row["count"], 2))),
                Cell(
                    words.seconds(row["seconds"]),
                    Place.of(str(row["source"]), row["line"]),
                    bar=float(row["seconds"]) / widest,
                    role="communication",
                ),
                Cell(words.seconds(row["exposed"])),
                Cell(format_bandwidth(row["busbw"]) if words.known(row["busbw"]) else "–"),
                Cell(words.share(row["busbw"] / best) if best else "–"),
                Cell(limit_of(row, best)),
            ]
        )
    head = [
        "operation",
        "message",
        "calls per step",
        "total per step",
        "exposed",
        "bus bandwidth",
        "of the ceiling",
        "limited by",
    ]
    left = len(sizes) - len(rows)
    return Table(
        "Communication by operation and message size",
        head,
        rows,
        numeric=frozenset({1, 2, 3, 4, 5, 6}),
        more=f"{left:,} cheaper rows are not shown." if left > 0 else "",
    )
