"""Step time over the run, and where an average step goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import averaged_steps, main_steps, mean_of, regular_steps
from dsprof.charts import (
    HELD,
    LABEL,
    RATES,
    PhaseTable,
    bound_by,
    held,
    highest,
    icicle,
    timeline,
)
from dsprof.page import words
from dsprof.page.model import Among, Cell, Chart, Section, Table
from dsprof.page.proofs import among_at, step_lines
from dsprof.page.validations import slowed
from dsprof.run.steps.durations import window
from dsprof.text.spread import Mark, spread, timed_singly
from dsprof.units import format_seconds, format_share, listed, windows

if TYPE_CHECKING:
    from dsprof.run import Run


class Typical(NamedTuple):
    """The phases of the steps that the mean step is the mean of."""

    table: PhaseTable
    rows: np.ndarray

    def lines_of(self, *phases: int) -> Among | None:
        """The lines that the mean of these phases is made of: the last one of every step."""
        which = np.ix_(self.rows, np.array(phases, dtype=np.int64))
        at, size = self.table.last[which].ravel(), self.table.seconds[which].ravel()
        told = at >= 0
        count = int(self.table.count[which].sum())
        return among_at(self.table.told, at[told], size[told], count)

    def self_lines_of(self, phase: int) -> Among | None:
        """The lines that the mean of its self time is made of: its own and those of its parts."""
        parts = (i for i, above in enumerate(self.table.parents) if above == phase)
        return self.lines_of(phase, *parts)

    def named(self, name: str) -> Among | None:
        """The lines of a phase."""
        return self.lines_of(*(i for i, word in enumerate(self.table.names) if word == name))

    def of_class(self, role: str) -> Among | None:
        """The lines of the phases of a class."""
        return self.lines_of(*(i for i, word in enumerate(self.table.classes) if word == role))


LEAST = 1e-3  #: of a step; time without a timer that is less is not worth a row
DRAWN = 0.01  #: of a step; timers that take less are of set-up and checkpoints
NO_STEPS = "No line that is understood says that an optimizer step ended."
NO_PHASES = "No line of the source breaks a step into phases."
NO_PHASES_RECORDED = "The recording has no phases."


def engines(steps: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """The steps of every engine, in the order of the run."""
    for engine in np.unique(steps["engine"].to_numpy(dtype=np.int64)).tolist():
        yield engine, steps[steps["engine"] == engine].reset_index(drop=True)


def time_section(
    engine: int,
    steps: pd.DataFrame,
    many: bool,
    of: int | None = None,
    *,
    noun: str = "step",
    lines: Lines = lambda _: None,
) -> Section:
    """The chart of every step; one per engine.

    Args:
        of: steps before thinning.
        noun: what `steps` are: steps, or records that nobody knows the steps of.
        lines: the lines that the seconds of some rows of `steps` are read from.
    """
    name = f"steps-{engine}"
    title = "Steps" if noun == "step" else f"{noun.capitalize()}s (steps unknown)"
    title += f" of engine {engine}" if many else ""
    figure = timeline(steps, noun)
    if figure is None:
        return Section(name, title, why=NO_STEPS)
    return Section(
        name,
        title,
        lead=[*_lead(steps, noun, lines), slowed(steps, noun), _kept(len(steps), of)],
        charts=[
            Chart(name, figure, _label(steps, noun), note=_note(steps, noun) + _beyond(steps, noun))
        ],
    )


Lines = Callable[[pd.DataFrame], Among | None]


def lines_of_steps(events: pd.DataFrame, table: PhaseTable | None) -> Lines:
    """The lines that the seconds of some steps are read from.

    Args:
        events: of the run.
        table: the phases of the steps asked for, which their index counts.
    """

    def lines(steps: pd.DataFrame) -> Among | None:
        if table is None:
            return step_lines(steps, events, None)
        at = table.last[steps.index].ravel()
        return step_lines(steps, events, table.told.iloc[at[at >= 0]])

    return lines


def _kept(kept: int, of: int | None) -> str:
    if of is None or kept == of:
        return ""
    return f" {kept:,} of {of:,} steps are kept in this page, slow and fast ones among them."


def _label(steps: pd.DataFrame, noun: str) -> str:
    times = "Time by class" if steps["seconds"].notna().any() else ""
    rate = "throughput" if any(steps[name].notna().any() for name in RATES if name in steps) else ""
    drawn = filter(None, [times, rate, "loss" if steps["loss"].notna().any() else ""])
    said = listed([*drawn])
    return (
        f"{said[:1].upper()}{said[1:]} of {words.count_of(len(steps), noun)}. Arrow keys "
        f"move from {noun} to {noun}, Enter opens one, plus and minus zoom, 0 shows the whole run."
    )


def _lead(steps: pd.DataFrame, noun: str, lines: Lines) -> list[str | Cell]:
    main = averaged_steps(steps)
    if main.empty:
        return [f"The source tells no {noun} times."]
    told = spread(timed_singly(main), _of(steps, main, noun))
    said = [
        part if isinstance(part, str) else Cell(part.text, among=lines(_in_order(main, part)))
        for part in told
    ]
    return [*_sentence(said), _two_times(steps, main, noun)]


def _in_order(steps: pd.DataFrame, mark: Mark) -> pd.DataFrame:
    """The steps that took a time, as they follow: of the two in the middle either may be first."""
    return steps.iloc[np.sort(mark.rows)]


def _sentence(said: list[str | Cell]) -> list[str | Cell]:
    """The same with a capital and a full stop."""
    if not said:
        return []
    first, *others = said
    head = f"{first[:1].upper()}{first[1:]}" if isinstance(first, str) else first
    return [head, *others, "."]


def _of(steps: pd.DataFrame, main: pd.DataFrame, noun: str) -> str:
    """Of which steps a spread is, where those alone are meant whose whole time is known, that are
    timed alike, or that are of one launch."""
    if (main["seconds"] != steps.loc[main.index, "seconds"]).any():
        return f" of the {words.count_of(len(main), noun)} whose whole time is known"
    some = len(main) < len(main_steps(steps)) or len(steps["segment"].unique()) > 1
    of = windows(window(main)) or "averaged" * some
    return f" of the {len(main):,} {of}" if of else ""


def _two_times(steps: pd.DataFrame, main: pd.DataFrame, noun: str) -> str:
    """Why the chart shows less than the mean step: it draws timers, which leave something out."""
    same = steps.loc[main.index]
    drawn, known = _mean_seconds(same), mean_of(main, "seconds")
    timers = bool((same["seconds_from"] == "timers").all())
    if not drawn or not timers or format_seconds(drawn) == format_seconds(known):
        return ""
    return (
        f" Drawn below is what the timers of each {noun} sum to, {format_seconds(drawn)} in "
        f"{_those(len(main), noun)} whose whole time is known to be {format_seconds(known)}."
    )


def _those(count: int, noun: str) -> str:
    return f"the one {noun}" if count == 1 else f"the mean of {words.count_of(count, noun)}"


def _note(steps: pd.DataFrame, noun: str) -> str:
    if steps["seconds"].isna().all():
        return f"What holds a {noun} back is unknown without its time."
    said = [
        f"{_spans(steps, marked, f'{bound}-bound {noun}')}, {_degree(held(steps, bound))}"
        for bound in HELD
        for marked in [bound_by(steps, bound)]
        if marked.any()
    ]
    if not said:
        return f"No {noun} is known to be held back by communication."
    return (
        f"Marked below the columns, higher where communication and waiting take more of the "
        f"{noun}: {'; '.join(said)}."
    )


def _beyond(steps: pd.DataFrame, noun: str) -> str:
    """How many steps the axis of times cuts off, and how one sees it."""
    seconds = steps["seconds"].to_numpy(dtype=float, na_value=np.nan)
    end = highest(seconds)
    if end is None:
        return ""
    count = words.count_of(int((seconds > end).sum()), noun)
    return f" A triangle at the top: {count} beyond the axis."


def _degree(shares: np.ndarray) -> str:
    """How much of the marked steps is communication and waiting, from the least to the most."""
    ends = [format_share(float(end)) for end in (np.nanmin(shares), np.nanmax(shares))]
    return " to ".join(dict.fromkeys(ends))


def _spans(steps: pd.DataFrame, marked: np.ndarray, noun: str) -> str:
    """Stretches of marked steps by their numbers, which may begin anew with a launch."""
    numbers = steps["step"].to_numpy(dtype=np.int64)
    launch = steps["segment"].to_numpy(dtype=np.int64, na_value=0)
    part = np.where(marked, launch, -1)
    starts = np.flatnonzero(marked & np.diff(part, prepend=-1).astype(bool))
    stops = np.flatnonzero(marked & np.diff(part, append=-1).astype(bool)) + 1
    count = words.count_of(int(marked.sum()), noun)
    if len(starts) > 6:
        return f"{count} in {len(starts):,} stretches"
    spans = [
        f"{numbers[a]:,}" if a == b - 1 else f"{numbers[a]:,} to {numbers[b - 1]:,}"
        for a, b in zip(starts, stops, strict=True)
    ]
    return f"{count} ({', '.join(spans)})"


def phase_section(
    run: Run,
    engine: int,
    steps: pd.DataFrame,
    table: PhaseTable | None,
    *,
    many: bool,
    noun: str = "step",
) -> Section:
    """Icicle of the mean step, and of the mean step before and after a change."""
    name = f"phases-{engine}"
    title = f"Where a step of engine {engine} goes" if many else "Where a step goes"
    if table is None:
        return Section(name, title, why=NO_PHASES_RECORDED if run.is_recording else NO_PHASES)
    rows = typical_rows(steps)
    totals = table.mean(rows)
    step = _mean_seconds(averaged_steps(steps))
    part = float(totals[table.roots].sum()) / step if step else 1.0
    if part < DRAWN:
        said = f"What the source times is {format_share(part)} of a {noun}: too little to draw."
        return Section(name, title, lead=said, tables=[_phase_rows(table, totals, step, rows)])
    chart = Chart(
        name,
        icicle(table, totals, step),
        "Phases of a mean step, parents above their parts, as wide as they last.",
        table=_phase_rows(table, totals, step, rows),
        note=_twice(table, totals),
    )
    return Section(
        name,
        title,
        lead=_whose(steps.iloc[rows], words.launch_of(run, averaged_steps(steps)), noun),
        charts=[chart, *_change(run, engine, steps, table)],
    )


def _whose(steps: pd.DataFrame, launch: str, noun: str) -> str:
    """Which steps the phases are the mean of."""
    first, last = int(steps["step"].iloc[0]), int(steps["step"].iloc[-1])
    of = f" of {launch}" if launch else ""
    if len(steps) == 1:
        return f"{noun.capitalize()} {first:,}{of} alone, the mean of all ranks that tell."
    ends = f"{first:,} to {last:,}{of}"
    return f"Mean of {words.rows_of(steps, noun)}, {ends}, and of all ranks that tell."


def typical_rows(steps: pd.DataFrame) -> np.ndarray:
    """Rows that the statistics of the verdict use, too: no first step, one launch."""
    main = averaged_steps(steps)
    return main.index.to_numpy() if len(main) else np.arange(len(steps))


def _mean_seconds(steps: pd.DataFrame) -> float | None:
    mean = mean_of(steps, "seconds")
    return mean if words.known(mean) else None


def _phase_rows(
    table: PhaseTable, totals: np.ndarray, step: float | None, rows: np.ndarray
) -> Table:
    own = table.self_time(totals)
    whole = step or float(sum(totals[i] for i in table.roots)) or 1.0
    mean = Typical(table, rows)
    proofs = [mean.lines_of(i) for i in range(len(table.names))]
    widest = max(float(own.max()), 1e-12)
    once = table.drawn(totals)
    rest = whole - float(sum(once[i] for i in table.roots))
    left = [rest] * (rest > LEAST * whole)
    per_step, alone = words.column([*totals, *left]), words.column(own)
    cells = [
        [
            Cell("\u2003" * _depth(table, i) + table.names[i]),
            Cell(LABEL.get(role, role), role=role),
            Cell(per_step[i], among=proofs[i]),
            Cell(format_share(totals[i] / whole)),
            Cell(alone[i], bar=float(own[i]) / widest, role=role, among=mean.self_lines_of(i)),
        ]
        for i, role in enumerate(table.classes)
    ]
    if left:
        told = (LABEL["unknown"], "", per_step[-1], format_share(rest / whole), "")
        cells.append([Cell(text) for text in told])
    head = ["phase", "class of its self time", "per step", "of the step", "self time"]
    return Table("Phases of a mean step", head, cells, numeric=frozenset({2, 3, 4}))


def _twice(table: PhaseTable, totals: np.ndarray) -> str:
    """What two timers measure, and where it is drawn."""
    said = [
        f"{format_seconds(totals[phase])} that two timers measure is drawn once, as "
        f"{table.names[phase]}, and left out of {table.names[timer]}"
        for timer, phase in table.shared
        if totals[phase] > 0
    ]
    label = "Phases of a mean step, parents above their parts, as wide as they last. "
    return label + "; ".join(said) + "." if said else ""


def _depth(table: PhaseTable, phase: int) -> int:
    above = table.parents[phase]
    return 0 if above < 0 else 1 + _depth(table, above)


def _change(run: Run, engine: int, steps: pd.DataFrame, table: PhaseTable) -> list[Chart]:
    """The mean step before and after a slowdown that the findings date."""
    slow = next((f for f in run.findings if f.rule == "slowdown" and f.steps), None)
    if slow is None or slow.steps is None:
        return []
    compared = regular_steps(steps)
    late = compared["step"].ge(slow.steps[0]).to_numpy(dtype=bool)
    if late.all() or not late.any():
        return []
    first, then = (compared.index.to_numpy()[rows] for rows in (~late, late))
    before, after = table.mean(first), table.mean(then)
    number = f"{int(compared['step'][then[0]]):,}"
    halves = {
        "before": (before, compared[~late], f"before step {number}"),
        "after": (after, compared[late], f"from step {number} on"),
    }
    longest = max(_mean_seconds(part) or 0.0 for _, part, _ in halves.values()) or None
    charts = [
        Chart(
            f"phases-{engine}-{word}",
            icicle(table, values, _mean_seconds(part), longest),
            f"The mean step {when}; before and after are on one scale.",
        )
        for word, (values, part, when) in halves.items()
    ]
    both = _compared(Typical(table, first), Typical(table, then), number)
    return [charts[0], replace(charts[1], table=both)]


def _compared(first: Typical, then: Typical, number: str) -> Table:
    """Self time per phase in the steps before a change and from there on."""
    table = first.table
    own_before, own_after = (table.self_time(table.mean(part.rows)) for part in (first, then))
    order = np.argsort(own_before - own_after)
    said = np.array(words.column([*own_before, *own_after, *np.abs(own_after - own_before)]))
    told_before, told_after, change = said.reshape(3, -1)
    rows = [
        [
            Cell(table.names[i]),
            Cell(str(told_before[i]), among=first.self_lines_of(i)),
            Cell(str(told_after[i]), among=then.self_lines_of(i)),
            Cell(f"{'+' if own_after[i] >= own_before[i] else '−'}{change[i]}"),
        ]
        for i in order
    ]
    head = ["phase", "before", "after", "difference"]
    return Table(
        f"Self time before and after step {number}", head, rows, numeric=frozenset({1, 2, 3})
    )
