"""Memory and the health of training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from dsprof.charts import Figure, over_steps, training, unchanged
from dsprof.events import Kind
from dsprof.page import words
from dsprof.page.model import Cell, Chart, Place, Section, Table, without, without_empty
from dsprof.page.proofs import among
from dsprof.run.table import of_kind
from dsprof.units import format_bytes

if TYPE_CHECKING:
    from dsprof.run import Run

ROWS = 200  #: of one table
_UP_TO: Final = "up to "
_GIB = float(1 << 30)

_MEMORY: Final = {
    "max_allocated": ("peak allocated, GiB", _GIB),
    "allocated": ("allocated, GiB", _GIB),
    "max_reserved": ("peak reserved, GiB", _GIB),
    "reserved": ("reserved, GiB", _GIB),
    "device_used": ("of the device in use, GiB", _GIB),
    "host_used": ("host memory, GiB", _GIB),
    "host_percent": ("host memory, %", 1.0),
    "host_process": ("resident memory of the process, GiB", _GIB),
    "swap_percent": ("swap space, %", 1.0),
    "cache_flushes": ("allocator cache flushes", 1.0),
    "refused": ("asked for and refused, GiB", _GIB),
}
_OF_GPU: Final = (*list(_MEMORY)[:5], "cache_flushes", "refused")
_ON_GPU: Final = frozenset(_MEMORY[name][0] for name in list(_MEMORY)[:5])


def memory_section(run: Run) -> Section:
    """Memory over steps, and its peaks."""
    if run.memory.empty:
        why = "No line of the source shows memory (MemAllocated=, MA, allocator warnings)."
        return Section("memory", "Memory", why=why)
    figure = over_steps(run.memory, _MEMORY, run.steps, _noun(run))
    table = _peaks(run.memory, {} if run.is_recording else _firsts(run.steps))
    limit = run.meta.get("gpu_memory_bytes")
    lead = _limit(run, limit) + _set_up(table)
    if figure is None:
        return Section("memory", "Memory", lead=lead, tables=[table] if table.rows else [])
    if limit:
        _draw_limit(figure, float(limit) / _GIB)
    label = f"Memory over {_ALONG[_noun(run)]}."
    chart = Chart("memory", figure, label, table if table.rows else None)
    return Section("memory", "Memory", lead=lead, charts=[chart])


def _firsts(steps: pd.DataFrame) -> dict[int, pd.Series[Any]]:
    """The first step of each launch: lines above its own may be of set-up."""
    return {int(row["segment"]): row for _, row in steps.drop_duplicates("segment").iterrows()}


def _at_step(row: pd.Series[Any], firsts: Mapping[int, pd.Series[Any]]) -> str:
    if not words.known(row["step"]):
        return "–"
    first = firsts.get(int(row["segment"]))
    up_to = first is not None and _above(row, first)
    return f"{_UP_TO if up_to else ''}{int(row['step']):,}"


def _above(row: pd.Series[Any], step: pd.Series[Any]) -> bool:
    """Whether a line is given to a step and stands above that step's own."""
    same = (row["step"], row["source"]) == (step["step"], step["source"])
    return bool(same and words.known(row["line"]) and row["line"] < step["line"])


def _set_up(table: Table) -> list[str | Cell]:
    early = next((row[-1].text for row in table.rows if row[-1].text.startswith(_UP_TO)), "")
    said = (
        f" Where it says {early}, the line precedes that step's own line: it may belong to set-up."
    )
    return [said] if early else []


def _limit(run: Run, limit: float | None) -> list[str | Cell]:
    """How much memory a GPU has; nothing where the memory told is none of a GPU."""
    if not limit:
        on_gpu = run.memory["name"].isin(_OF_GPU).any() and not run.judged[0].on_cpu
        return ["The source does not say how much memory a GPU has."] if on_gpu else []
    told = of_kind(run.told, Kind.CONFIG, "gpu_memory_bytes")
    place = Place.of(str(told["source"].iloc[0]), told["line"].iloc[0]) if len(told) else None
    return ["One GPU has ", Cell(format_bytes(limit), place), "."]


def _draw_limit(figure: Figure, limit: float) -> None:
    """A line where the memory of a GPU ends, in each panel of such memory."""
    layout = figure["layout"]
    quiet = layout["yaxis"]["tickfont"]
    for row, title in enumerate([note["text"] for note in layout["annotations"]]):
        if title not in _ON_GPU:
            continue
        place = {"xref": "paper", "yref": "y" if row == 0 else f"y{row + 1}"}
        ends = place | {"x0": 0, "x1": 1, "y0": limit, "y1": limit}
        line = {"color": quiet["color"], "width": 1, "dash": "dash"}
        layout["shapes"].append({"type": "line", **ends, "line": line})
        said = f"all of one GPU: {format_bytes(limit * _GIB)}"
        words = {"text": said, "showarrow": False, "font": quiet}
        corner = {"x": 1, "xanchor": "right", "y": limit, "yanchor": "top"}
        layout["annotations"].append(place | corner | words)


Part = tuple[Any, pd.DataFrame]  #: the key of a row of the table, and what it sums up


def _peaks(memory: pd.DataFrame, firsts: Mapping[int, pd.Series[Any]]) -> Table:
    told = memory[memory["bytes"].notna()]
    by = ["name", "segment", "rank"]
    every = list(told.groupby(by, observed=True, dropna=False))
    parts = _highest(every)
    ends = [(part.iloc[0], part.iloc[int(part["bytes"].argmax())]) for _, part in parts]
    said = words.byte_column(row["bytes"] for both in ends for row in both)
    rows = [
        [
            Cell(_MEMORY.get(str(name), (str(name),))[0].partition(",")[0]),
            Cell(f"{int(start['segment']) + 1}"),
            Cell(_rank(rank)),
            Cell(first, Place.of(str(start["source"]), start["line"])),
            Cell(highest, Place.of(str(top["source"]), top["line"])),
            Cell(_at_step(top, firsts)),
        ]
        for ((name, _segment, rank), _), (start, top), first, highest in zip(
            parts, ends, said[::2], said[1::2], strict=True
        )
    ]
    head = ["memory", "launch", "rank", "first", "highest", "at step"]
    left = len(every) - len(parts)
    more = f"{words.count_of(left, 'row')} of lower peaks not shown." if left > 0 else ""
    table = Table("Memory by rank", head, rows, numeric=frozenset({1, 2, 3, 4, 5}), more=more)
    return without_empty(table if len(told["segment"].unique()) > 1 else without(table, 1))


def _highest(parts: list[Part]) -> list[Part]:
    """At most `ROWS` of them, of each kind of memory and launch those with the highest peaks."""
    falling = sorted(range(len(parts)), key=lambda at: -parts[at][1]["bytes"].max())
    seen: Counter[tuple[Any, ...]] = Counter()
    nth = {}
    for at in falling:
        kind = parts[at][0][:2]
        nth[at] = seen[kind]
        seen[kind] += 1
    kept = sorted(falling, key=lambda at: nth[at])[:ROWS]
    return [parts[at] for at in sorted(kept)]


def _rank(rank: Any) -> str:
    return str(int(rank)) if words.known(rank) else "–"


#: Metrics that a source may tell although no step is known to have ended.
_ALONE = {
    "lr": "learning rate",
    "loss_scale": "loss scale",
    "grad_norm": "gradient norm",
    "overflow": "steps skipped by an overflow",
}


def training_section(run: Run) -> Section:
    """Learning rate, loss scale, gradient norm and skipped steps."""
    title = "Training values"
    steps = run.steps
    figure, flat = training(steps, _noun(run)), unchanged(steps)
    if figure is None and not flat:
        return _training_alone(title, run.told)
    lead: list[str | Cell] = []
    for name, (label, value) in flat.items():
        lines = among(_told(run.told, name), "value")
        so_far = "at every count" if name == "skipped" and value else "throughout"
        lead += [f"{label.capitalize()}: ", Cell(f"{value:,.10g}", among=lines), f" {so_far}. "]
    charts = [Chart("training", figure, _drawn(figure, _noun(run)))] if figure else []
    return Section("training", title, lead=lead, charts=charts)


_ALONG: Final = {"step": "optimizer steps", "record": "records, as printed"}


def _noun(run: Run) -> str:
    return "record" if run.counted else "step"


def _drawn(figure: Figure, noun: str) -> str:
    """What a chart shows, by the titles of its panels."""
    titles = [note["text"] for note in figure["layout"]["annotations"]]
    return f"{', '.join(titles).capitalize()} over {_ALONG[noun]}."


def _told(events: pd.DataFrame, name: str) -> pd.DataFrame:
    """Rows of a metric that have a value."""
    rows = of_kind(events, Kind.METRIC, name)
    return rows[rows["value"].notna()]


def _training_alone(title: str, events: pd.DataFrame) -> Section:
    """What lines outside any optimizer step tell."""
    rows = []
    for name, label in _ALONE.items():
        told = _told(events, name)
        if told.empty:
            continue
        ends = [f"{told['value'].sum():,.6g}"] if name == "overflow" else _ends(told["value"])
        lines = among(told, "value")
        rows.append([Cell(label), Cell(" to ".join(ends), among=lines), Cell(f"{len(told):,}")])
    if not rows:
        why = "No line of the source shows the learning rate or the loss scale."
        return Section("training", title, why=why)
    head = ["what", "value", "lines"]
    table = Table("Stated outside of any optimizer step", head, rows, numeric=frozenset({1, 2}))
    lead = "No optimizer step is known to have ended; these lines stand by themselves."
    return Section("training", title, lead=lead, tables=[table])


def _ends(values: pd.Series[Any]) -> list[str]:
    """The first and the last value; one where they are equal."""
    return list(dict.fromkeys(f"{values.iloc[i]:.6g}" for i in (0, -1)))
