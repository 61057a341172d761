"""The figures of a run that both the terminal and the JSON document show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import (
    Breakdown,
    known_by,
    left_aside,
    main_steps,
    mean_of,
    told_alike,
    weights_of,
)
from dsprof.analysis.rates import (
    DIFFERS,
    batch_of,
    rate_of_steps,
    samples_per_second,
    seconds_apart,
)
from dsprof.events import Kind
from dsprof.findings.beside.rated import counted
from dsprof.findings.numerics.skips import told_since, told_skips
from dsprof.findings.unknown.last_bar import Bar, bar
from dsprof.run.steps.durations import window
from dsprof.run.table import STEP, of_kind
from dsprof.text.parts import Part, Phase, parts_of
from dsprof.text.spread import percentile, spread, timed_singly
from dsprof.text.stated import Training, training
from dsprof.text.words import number, whole_number
from dsprof.units import format_count, windows

if TYPE_CHECKING:
    from dsprof.run import Run


@dataclass(frozen=True, slots=True)
class Overview:
    """Optimizer steps in figures; None where the source does not say.

    Means, median and `p95` are over the launch and engine that took most time, its first row
    left out where there are enough, and of the rest those that say how long a whole step took
    where some do, in the classes that most of them tell: `averaged` rows of `rows` in all.
    """

    rows: int
    first: int | None  # None too where the source numbers no step
    last: int | None
    launches: int
    averaged: int
    window: int | None  # of how many steps each of these is the mean, None if they differ
    seconds: float | None
    seconds_from: str | None  # how `seconds` is known: the word of `Run.steps.seconds_from`
    median: float | None
    spread: str  # of the same steps; "" of one
    p95: float | None  # None of too few to say
    classes: dict[str, float]  # seconds of the mean step
    phases: list[Phase]  # largest first
    parts: list[Part]  # what the terminal's table shows of the two
    communication_share: float | None
    bound: dict[str, int]  # rows held back by each cause
    loss: tuple[float, float] | None  # first and last that is a number
    samples_per_second: float | None  # of the last launch where no step is timed, as the next two
    tokens_per_second: float | None
    tflops: float | None
    skipped: int | None
    samples_per_second_mean: float | None = None  # the last that the source states of all so far
    tokens_per_second_mean: float | None = None  # the same
    tflops_mean: float | None = None  # the same
    samples_per_second_of_steps: float | None = None  # batch over `seconds`, where that differs
    samples_per_second_counted: float | None = None  # of all these steps, by stated mean rates
    training: Training | None = None  # what the source states of the whole training
    bar: Bar | None = None  # how far the last bar came, where no step is timed
    tokens_per_second_gpu: float | None = None  # of one GPU, where that of all is unknown
    aside: str = ""  # which steps the means leave out
    seconds_apart: float | None = None  # from step to step, where a recording's engines take turns
    loss_until: int | None = None  # step of the last loss, where all that follow are no numbers


_SEEN: Final[WeakKeyDictionary[Run, Overview]] = WeakKeyDictionary()


def overview(run: Run) -> Overview:
    """A run does not change, so it is looked over once, whoever tells of it."""
    if run not in _SEEN:
        _SEEN[run] = _overview(run)
    return _SEEN[run]


def _overview(run: Run) -> Overview:
    steps = run.steps
    main = told_alike(main_steps(steps))
    rates = _rated(steps, main)
    mean = run.judged[0].mean
    seconds = timed_singly(main)
    length = number(mean.seconds) if mean else None
    many = window(main)
    of = windows(many) or "averaged" * (len(main) < len(steps))
    told = spread(seconds, f" of the {len(main):,} {of}" if of else "")
    return Overview(
        rows=len(steps),
        first=None if run.counted else whole_number(steps["step"].min()),
        last=None if run.counted else whole_number(steps["step"].max()),
        launches=int(steps["segment"].nunique()),
        averaged=len(main),
        window=many,
        seconds=length,
        seconds_from=known_by(main),
        median=number(seconds.median()),
        spread="".join(part if isinstance(part, str) else part.text for part in told),
        p95=percentile(seconds, 95),
        classes=dict(mean.classes) if mean else {},
        phases=_phases(mean.phases) if mean else [],
        parts=_parts(mean, run, int(main["engine"].iloc[0])) if mean else [],
        communication_share=number(main["communication_share"].mean()),
        bound={str(word): int(n) for word, n in steps["bound"].value_counts().items() if n},
        loss=_ends(_of_one_engine(steps, main)["loss"] if len(steps) else _micro_losses(run)),
        samples_per_second=number(samples_per_second(run, rates)),
        tokens_per_second=number(mean_of(rates, "tokens_per_second")),
        tflops=number(mean_of(rates, "tflops")),
        skipped=_skipped(run),
        samples_per_second_mean=_so_far(run, "samples_per_second_mean"),
        tokens_per_second_mean=_so_far(run, "tokens_per_second_mean"),
        tflops_mean=_so_far(run, "tflops_mean"),
        samples_per_second_of_steps=rate_of_steps(rates, length, batch_of(run, rates)),
        samples_per_second_counted=_counted(run),
        tokens_per_second_gpu=_of_a_gpu(run, rates),
        training=training(run),
        bar=bar(run),
        aside=left_aside(steps),
        seconds_apart=seconds_apart(run, main),
        loss_until=_loss_until(run, _of_one_engine(steps, main)),
    )


def rate_of(batch_over_time: float, stated: float, of_all: float | None, kind: str = "") -> str:
    """Samples per second of a mean step beside the rates stated, which differ, and why they do.

    `of_all` is the rate of all these steps as far as it is stated: where it is no more, what is
    stated of single steps leaves out none of a step, but these are others.
    """
    said = f"the {format_count(stated)} stated{kind}"
    if stated < batch_over_time:
        why = f"{said} are of single steps, slower than most"
    elif of_all and of_all * (1 - DIFFERS) <= batch_over_time:
        why = f"{said} are of single steps, quicker than most"
    else:
        why = f"{said} leave out part of a step"
    return f"{format_count(batch_over_time)} samples/s, batch over step time; {why}"


def _rated(steps: pd.DataFrame, main: pd.DataFrame) -> pd.DataFrame:
    """The rows whose rates are meant: those averaged, else all of the last launch's one engine."""
    last = steps[steps["segment"] == steps["segment"].max()]
    return last if main.empty and len(last["engine"].unique()) == 1 else main


def _counted(run: Run) -> float | None:
    """Samples per second of the judged steps by what the source counts of all of them."""
    facts = run.judged[0]
    inside, batch = counted(facts, facts.steps), batch_of(run, facts.steps)
    if inside is None or batch is None:
        return None
    return number(batch / np.average(inside.seconds, weights=weights_of(facts.steps)))


def _of_a_gpu(run: Run, rates: pd.DataFrame) -> float | None:
    """Tokens per second of one GPU as these steps state them, where how many GPUs is unknown."""
    told = run.told[run.told["name"] == "tokens_per_second_gpu"]
    if told.empty or rates["tokens_per_second"].notna().any():
        return None
    told = told.merge(rates[list(STEP)], on=list(STEP))
    return number(told.groupby(list(STEP))["value"].mean().mean())


def _so_far(run: Run, name: str) -> float | None:
    """The mean rate since the start that the source states last."""
    told = run.told.loc[run.told["name"] == name, "value"].dropna()
    return number(told.iloc[-1]) if len(told) else None


def _parts(mean: Breakdown, run: Run, engine: int) -> list[Part]:
    phases = run.phases
    return parts_of(
        mean.seconds,
        mean.classes,
        _phases(mean.phases),
        blent=set(phases.loc[phases["mixed"], "name"].unique()) if "mixed" in phases else (),
        named={one.phase for one in run.findings if one.phase and one.engine in (None, engine)},
        alone=run.config.get("world_size") == 1,
        hidden=run.hides_communication,
    )


def _phases(table: pd.DataFrame) -> list[Phase]:
    return [
        Phase(str(name), str(class_), float(seconds))
        for name, class_, seconds in zip(table.index, table["class"], table["seconds"], strict=True)
    ]


def _of_one_engine(steps: pd.DataFrame, main: pd.DataFrame) -> pd.DataFrame:
    """The steps of the judged engine: two of them have losses of their own. Where a later launch
    began anew they have, too: then those of the judged launch."""
    if main.empty:
        return steps
    steps = steps[steps["engine"] == main["engine"].iloc[0]]
    begun = steps.groupby("segment")["step"].min()
    goes_on = begun.is_monotonic_increasing and begun.is_unique
    return steps if goes_on else steps[steps["segment"] == main["segment"].iloc[0]]


def _micro_losses(run: Run) -> pd.Series[float]:
    """Losses of no step, which scripts print of micro-batches: those of the rank that is first to
    tell one. Of lines of one micro-batch that follow each other, as several ranks print them
    without a name, the first one's."""
    told = of_kind(run.told, Kind.METRIC, "loss")
    ranks = told["rank"].fillna(-1)
    told = told[ranks == ranks.head(1).sum()]
    where_told = ["source", "record"]
    rows = of_kind(run.told, Kind.METRIC, "micro_step").drop_duplicates(where_told)
    numbers = rows.set_index(where_told)["value"]
    number = numbers.reindex(pd.MultiIndex.from_frame(told[where_told])).to_numpy()
    values: pd.Series[float] = told.loc[number != pd.Series(number).shift().to_numpy(), "value"]
    return values


def _ends(values: pd.Series[Any]) -> tuple[float, float] | None:
    told = values.dropna()
    return (float(told.iloc[0]), float(told.iloc[-1])) if len(told) else None


def _loss_until(run: Run, steps: pd.DataFrame) -> int | None:
    """After which of these steps the source tells losses, and none that is a number."""
    known = steps["loss"].notna().to_numpy(bool)
    if not known.any():
        return None
    last = steps[known].iloc[-1]
    told = of_kind(run.told, Kind.METRIC, "loss")
    later = steps["step"][steps["segment"].eq(last["segment"]) & steps["step"].gt(last["step"])]
    mine = told["segment"].eq(last["segment"]) & told["engine"].eq(last["engine"])
    return int(last["step"]) if bool((mine & told["step"].isin(later)).any()) else None


def _skipped(run: Run) -> int | None:
    """Skipped steps of all launches, where each counts from its own start: a checkpoint holds the
    counter, and a launch that goes on counts on. Where nothing counts them, those that single
    lines tell of."""
    told = run.steps.dropna(subset="skipped")
    if told.empty:
        return told_skips(run) or None
    total = 0
    for _, engine in told.groupby("engine"):
        ends = engine.groupby("segment").agg(
            first=("step", "min"),
            last=("step", "max"),
            begin=("skipped", "min"),
            end=("skipped", "max"),
        )
        on = (ends["first"] > ends["last"].shift()) & (ends["begin"] >= ends["end"].shift())
        total += int((ends["end"] - ends["end"].shift().where(on).fillna(0)).sum())
    return total + told_since(run)
