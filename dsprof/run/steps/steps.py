"""One row per optimizer step: its metrics, and where its seconds went."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.events import CLASSES, Class, Kind
from dsprof.run.steps.bars import bar_seconds
from dsprof.run.steps.batches import COUNTABLE, batch_sizes, counted_batches, positive
from dsprof.run.steps.between import by_the_clock, wider_timers
from dsprof.run.steps.bound import bound_of
from dsprof.run.steps.classes import (
    class_seconds,
    excess_of,
    mixed_seconds,
    reduce_untimed,
    settle,
    timed_steps,
)
from dsprof.run.steps.durations import ENOUGH, all_seconds, shares_of
from dsprof.run.steps.partial import partial_steps
from dsprof.run.steps.pauses import lasted, paces, stamped_steps
from dsprof.run.steps.seldom import of_all_steps
from dsprof.run.steps.stretches import steps_of
from dsprof.run.table import (
    STEP,
    Codes,
    Numbers,
    among,
    categories,
    keys,
    numbers,
    of_kind,
    of_part,
    plain,
    positions,
    runs,
    where,
    whole,
)

MARKS: Final = (
    "loss", "lr", "grad_norm", "loss_scale", "skipped", "skipped_window", "nan_window",
    "step_seconds", "samples_per_second", "samples_per_second_mean", "tokens_per_second",
    "tokens_per_second_gpu", "tflops", "mfu", "samples", "tokens", "global_batch_size",
    "total_steps",
)  # fmt: skip
#: What an engine states that also holds for the turn its steps are part of.
OF_TURNS: Final = ("lr", "grad_norm", "loss_scale", "overflow")
#: Whose records may time the forwards and backwards of a step alone.
_INNER: Final = ("huggingface.train",)
#: Whose timers alone say how long a step takes, in means since the line before.
_OF_MEANS: Final = ("lerobot.metrics", "lerobot.metrics_rounded")

COLUMNS: Final = (
    *STEP, "at", "loss", "lr", "grad_norm", "loss_scale", "skipped", "overflow",
    "seconds", "seconds_from", "whole_seconds", "whole_from", "covers", "smoothed", "warm_up",
    "samples_per_second", "tokens_per_second", "tflops",
    *CLASSES, "mixed", "communication_share", "bound", "source", "line",
)  # fmt: skip

#: The columns of a mark that are used.
_READ: Final = (
    *STEP, "steps", "rank", "at", "name", "seconds", "value", "source", "line", "pattern",
)  # fmt: skip


def steps(
    events: pd.DataFrame,
    phases: pd.DataFrame,
    comm: pd.DataFrame,
    config: Mapping[str, Any],
    *,
    recorded: bool = False,
    counted: bool = False,
    hidden: bool = False,
    times: pd.DataFrame | None = None,
) -> tuple[pd.DataFrame, pd.Series[float]]:
    """One row per (segment, engine, step) that a mark or the timers of a step close.

    `seconds` is the duration of one optimizer step, determined in the same way for all steps of a
    segment and engine, so that they can be compared. `seconds_from` says how: "logged"; batch size
    divided by "throughput"; from a progress "bar" of training; as the sum of the step's "timers"
    (forward to step, without untimed work); or, if a run has nothing else, by the "clock" between
    two lines. The first that is known for half of the steps is used. `whole_seconds` is the whole
    step as the source states it, however rarely: see `durations.whole_steps`.

    Bars, lines of every tenth step and the clock give the mean of as many steps as `covers` says.
    Where it is `smoothed`, the mean over the steps is known but no single step: by the clock (see
    `dsprof.run.steps.between`), or "rated" if the steps with a rate are unlike the others
    (`dsprof.run.steps.seldom`). `warm_up` marks the first step of a launch, or the window that
    includes it, if the source shows that a launch began.

    Seconds of a class are the mean over the ranks, and missing if no timer of the run measures the
    class. `mixed` is the part of `other` that is compute and communication unseparated.

    Args:
        recorded: the source is a recording, which saw every collective.
        counted: step numbers were counted from records, so neither the clock nor a bar gives the
            duration of a single step.
        hidden: timers of compute hold communication, too.
        times: steps of recordings (see `Recorded.times`), if `events` lacks some of them.

    Returns:
        The table, and for each row the sum of the step's timers on the mean rank, which may exceed
        the step.
    """
    rows = of_kind(events, Kind.METRIC, *MARKS, "overflow")[list(_READ)]
    foreign = (numbers(rows["steps"]) == 0) & ~among(rows["name"], OF_TURNS)
    rows = where(rows, rows["step"].notna() & ~foreign)
    marks = where(rows, among(rows["name"], MARKS))
    bars = bar_seconds(events)[: 0 if counted else None]
    marks = _of_whole_steps(marks, bars)
    if times is not None:
        marks = marks[(marks["name"] != "step_seconds") | marks["pattern"].notna()]
        marks = _by_rank(pd.concat([marks, _as_marks(times)], ignore_index=True))
    table = _index(marks, phases, bars)
    values = _values(marks, table) | {"bar_seconds": np.full(len(table), np.nan)}
    values["bar_seconds"][positions(table, bars, *STEP)] = numbers(bars["seconds"])
    table = pd.concat([table, pd.DataFrame(values, table.index)], axis=1)
    at = steps_of(table, phases)
    classes = class_seconds(table[list(STEP)], phases, at, comm, recorded=recorded)
    table["mixed"] = mixed_seconds(table, phases, classes)
    clock = pd.Series(np.nan, table.index) if counted else _clock(table)
    timed = timed_steps(table, at)
    inside = classes.drop(columns=Class.CHECKPOINT)
    told = inside.sum(axis=1)
    sums = told.where(inside.notna().any(axis=1))
    sums = sums.where(timed if recorded else timed & ~partial_steps(table, phases))
    _rates(table, sums, clock, batch_sizes(events, table, config), config)
    of_all_steps(table)
    table["passed"] = stamped_steps(table)
    if not (recorded or (counted and marks["steps"].isna().any())):
        _by_the_clock(table, events)
        _by_wider_timers(table, sums)
    table["covers"] = _covered(table, marks, bars)
    classes = settle(classes, numbers(table["seconds"]))
    classes = reduce_untimed(classes, config.get("data_parallel_size"))
    if config.get("world_size") == 1:
        timed = classes.notna().any(axis=1)
        silent = classes[Class.COMMUNICATION].isna() & timed
        classes = classes.assign(
            **{Class.COMMUNICATION: classes[Class.COMMUNICATION].mask(silent, 0.0)}
        )
    table[list(CLASSES)] = classes
    shares = shares_of(table)
    moving = shares[Class.COMMUNICATION] + shares[Class.WAIT].fillna(0.0)
    table["communication_share"] = moving.where(shares[Class.COMMUNICATION].notna())
    excess = excess_of(table, phases, at) * numbers(table["seconds"] / all_seconds(table))
    table["bound"] = bound_of(shares, excess, hidden=hidden)
    _skips(table, where(rows, among(rows["name"], ["overflow"])))
    table["warm_up"] = _warms_up(table, events, recorded=recorded)
    return table[list(COLUMNS)], told


def _of_whole_steps(marks: pd.DataFrame, bars: pd.DataFrame) -> pd.DataFrame:
    """Without what the Trainer's records tell of the forwards and backwards of a step, as TRL's do,
    where bars time whole steps."""
    told = among(marks["name"], ["step_seconds"]) & among(marks["pattern"], _INNER)
    return where(marks, ~told) if 2 * len(bars) >= told.sum() else marks


def _as_marks(times: pd.DataFrame) -> pd.DataFrame:
    return times.assign(name="step_seconds", pattern=None, value=np.nan)


def _by_rank(marks: pd.DataFrame) -> pd.DataFrame:
    """Sort marks of the lowest rank first, so that its line represents a step where it has one."""
    if marks["rank"].nunique() < 2:
        return marks
    return marks.sort_values("rank", kind="stable", ignore_index=True)


def _index(marks: pd.DataFrame, *more: pd.DataFrame) -> pd.DataFrame:
    """The steps in order, each with the first line that marks it and its last time stamp.

    A loss scale may have a line of its own, which tells no step: another one's is preferred.
    """
    wanted = [*STEP, "source", "line"]
    scales = (marks["name"] == "loss_scale").to_numpy(dtype=bool)
    told = (marks[~scales], marks[scales], *more)
    lines = pd.concat([_firsts(rows[wanted]) for rows in told], ignore_index=True)
    table = lines.drop_duplicates(list(STEP)).sort_values(list(STEP), ignore_index=True)
    place = positions(table, marks, *STEP)
    latest = marks["at"].where(_stamps_all(marks, place)).groupby(place).max()
    table["at"] = latest.reindex(table.index)
    return table


def _stamps_all(marks: pd.DataFrame, place: Codes) -> np.ndarray:
    """Marks in lines of a kind that has a stamp for every stamped step, if there are any: the time
    between lines of different kinds is not the time of a step. DeepSpeed prints a rate only from
    the third step on.
    """
    stamped: np.ndarray = marks["at"].notna().to_numpy()
    if not stamped.any():
        return stamped
    pattern, _ = pd.factorize(marks["pattern"], use_na_sentinel=False)
    told = pd.DataFrame({"pattern": pattern[stamped], "place": place[stamped]})
    covers = told.groupby("pattern")["place"].nunique()
    whole = covers.index[covers == told["place"].nunique()]
    return stamped & np.isin(pattern, whole) if len(whole) else stamped


def _firsts(rows: pd.DataFrame) -> pd.DataFrame:
    """The first row of each run of consecutive rows of one step."""
    return rows.iloc[runs(*(plain(rows[name]) for name in STEP))]


def _values(marks: pd.DataFrame, table: pd.DataFrame) -> dict[str, Numbers]:
    """Each mark's value per step: the last one of the lowest rank.

    The engine's own loss is that of its last step; a framework on top prints the mean of the
    window, which is preferred. Rates of both are not alike: see `_of_one`.
    """
    place, value = positions(table, marks, *STEP), numbers(marks["value"])
    name, pattern = (marks[column].astype("category") for column in ("name", "pattern"))
    engine = among(pattern, [one for one in pattern.cat.categories if one.startswith("deepspeed")])
    rank = whole(marks["rank"]).clip(0)
    order = np.lexsort((-rank, ~engine))
    found = {}
    for word in MARKS:
        mine = order[among(name, [word])[order]]
        if word == "samples_per_second":
            mine = _of_one(mine, place, engine)
        found[word] = np.full(len(table), np.nan)
        found[word][place[mine]] = value[mine]
    mine = order[among(name, ["step_seconds"])[order]]
    last = marks["seconds"].iloc[mine].groupby([place[mine], rank[mine]]).last()
    mean = last.groupby(level=0).mean()
    found["step_seconds"][mean.index.to_numpy()] = mean.to_numpy()
    return found


def _of_one(rows: Codes, place: Codes, engine: np.ndarray) -> Codes:
    """Rates of steps of the framework alone, if it tells half of them: the engine's are of other
    times, or of a timer that did not wait for the device."""
    others = rows[~engine[rows]]
    enough = 2 * len(np.unique(place[others])) >= len(np.unique(place[rows]))
    return others if enough else rows


def _rates(
    table: pd.DataFrame,
    timed: pd.Series[float],
    clock: pd.Series[float],
    batch: pd.Series[float],
    config: Mapping[str, Any],
) -> None:
    """Fill `seconds`, `seconds_from`, `samples_per_second` and `tokens_per_second`."""
    batch = (
        table["global_batch_size"].fillna(counted_batches(table, table["samples"])).fillna(batch)
    )
    rate = table["samples_per_second"]
    stated = {
        "logged": table["step_seconds"],
        "throughput": batch / rate,
        "bar": table["bar_seconds"],
    }
    silent = _known_anywhere(table, [*stated.values(), timed]) == 0
    known = stated | {"timers": timed, "clock": clock.where(silent)}
    table["seconds"], table["seconds_from"] = _in_one_way(table, known)
    table["whole_seconds"], table["whole_from"] = _in_one_way(table, stated)
    logged = among(table["seconds_from"], ["logged", "bar", "clock"])
    table["samples_per_second"] = rate.fillna((batch / table["seconds"]).where(logged))
    per_gpu = table["tokens_per_second_gpu"] * positive(config, "world_size")
    per_sample = table["samples_per_second"] * positive(config, "seq_length")
    table["tokens_per_second"] = table["tokens_per_second"].fillna(per_gpu).fillna(per_sample)


def _by_the_clock(table: pd.DataFrame, events: pd.DataFrame) -> None:
    """Set `whole_seconds` by the clock where that reliably shows more time than timers or lines do.
    Rates and times that a framework states may also omit what lies between its steps.
    """
    stated = table["whole_seconds"].where(table["whole_from"] != "bar")  # a bar follows the clock
    told = of_part(table, stated.notna())
    by_timers = table["seconds"].where(among(table["seconds_from"], ["timers"]))
    known = stated.where(told >= ENOUGH, by_timers)
    clock = by_the_clock(events, table.assign(known=known))
    mine = clock["seconds"].notna()
    if not mine.any():
        return
    longer = of_part(table, mine) > 0
    table["whole_seconds"] = table["whole_seconds"].mask(longer, clock["seconds"])
    way = table["whole_from"].astype("str").mask(longer, None).mask(mine, "clock")
    table["whole_from"] = way.astype("category")
    table["smoothed"] = table["smoothed"].mask(longer, clock["smoothed"])
    table["passed"] = clock["passed"].fillna(table["passed"])


def _by_wider_timers(table: pd.DataFrame, timed: pd.Series[float]) -> None:
    """Use the sum of the timers as `seconds` where they include time that the stated rate omits."""
    wider = wider_timers(table, timed)
    if not wider.any():
        return
    table["seconds"] = table["seconds"].mask(wider, timed)
    way = table["seconds_from"].astype("str").mask(wider, "timers")
    table["seconds_from"] = way.where(table["seconds"].notna()).astype("category")


def _covered(table: pd.DataFrame, marks: pd.DataFrame, bars: pd.DataFrame) -> pd.Series[float]:
    """The number of steps whose mean each row's whole time, or else its `seconds`, is."""
    untold = table["whole_from"].isna().to_numpy()

    def known_by(way: str) -> np.ndarray:
        whole, seconds = (among(table[name], [way]) for name in ("whole_from", "seconds_from"))
        return whole | (untold & seconds)

    said: dict[str, Callable[[], pd.DataFrame]] = {
        "logged": lambda: marks[marks["name"] == "step_seconds"],
        "timers": lambda: marks[marks["pattern"].isin(_OF_MEANS)],
        "bar": lambda: bars.assign(steps=bars["covers"]),
    }
    many = np.where(known_by("clock") & ~table["smoothed"], table["passed"], np.nan)
    for way, told in said.items():
        if (mine := known_by(way)).any():
            rows, each = told(), np.full(len(table), np.nan)
            each[positions(table, rows, *STEP)] = numbers(rows["steps"])
            many[mine] = each[mine]
    return pd.Series(np.where(many > 0, many, 1.0), table.index)


def _in_one_way(
    table: pd.DataFrame, candidates: Mapping[str, pd.Series[float]]
) -> tuple[pd.Series[float], pd.Series[Any]]:
    """The first candidate that is known for at least half as many steps of a run as any, and its
    name.
    """
    counts = [_known_anywhere(table, [one]) for one in candidates.values()]
    most = np.max(counts, axis=0)
    seconds, way = np.full(len(table), np.nan), np.full(len(table), -1)
    for number, known in enumerate(candidates.values()):
        mine = (way < 0) & (counts[number] > 0) & (2 * counts[number] >= most)
        seconds[mine], way[mine] = numbers(known)[mine], number
    way[np.isnan(seconds)] = -1
    ways = categories(way, list(candidates))
    return pd.Series(seconds, table.index), pd.Series(ways, table.index)


def _known_anywhere(table: pd.DataFrame, columns: list[pd.Series[float]]) -> Numbers:
    """For how many steps of the row's segment and engine one of `columns` is known."""
    return of_part(table, np.any([one.notna() for one in columns], axis=0))


def _clock(table: pd.DataFrame) -> pd.Series[float]:
    """Seconds per step between two lines; unknown if there is a pause between them."""
    seconds = paces(table)
    return seconds.mask(lasted(table, seconds).notna())


def _warms_up(table: pd.DataFrame, events: pd.DataFrame, *, recorded: bool) -> pd.Series[bool]:
    """The rows that hold the first step of a launch whose beginning the source shows: it is step 1,
    of a later launch, recorded, or behind settings or a launcher's lines.
    """
    part, step = keys(table, "segment", "engine"), table["step"].astype("float64")
    passed = step.diff().where(np.diff(part, prepend=-1) == 0)
    window = passed.groupby(part).transform("median").fillna(1.0)
    heads = runs(part)  # steps are in order
    first = np.repeat(numbers(step)[heads], np.diff(heads, append=len(table)))
    settings = among(events["kind"], [Kind.CONFIG])
    lines = pd.Series(numbers(events["line"])[settings])
    begun = lines.groupby(events["segment"].to_numpy()[settings]).min()
    shown = (window >= first) | (table["segment"] > 0) | recorded
    shown |= begun.reindex(table["segment"]).to_numpy() < numbers(table["line"])
    return shown & (step - table["covers"] < first)


def _skips(table: pd.DataFrame, overflows: pd.DataFrame) -> None:
    """Fill `skipped` (cumulative) and `overflow` (a step was skipped since the row before).

    If the source prints each overflow, those lines decide; otherwise the counts do: the engine's,
    and only if there is none that of each window. Megatron with DeepSpeed may leave its own count
    at 0: beside lines that tell of overflows, it counts nothing.
    """
    window = table["skipped_window"]
    if overflows.empty and table["skipped"].isna().all() and window.isna().all():
        table["skipped"] = pd.Series(pd.NA, table.index, dtype="Int64")
        table["overflow"] = pd.Series(pd.NA, table.index, dtype="boolean")
        return
    run = keys(table, "segment", "engine")
    counts = of_part(table, table["skipped"].notna()) > 0
    skipped = table["skipped"].where(counts, window.groupby(run).cumsum())
    skipped = skipped.where(skipped.between(0, COUNTABLE)).round()
    before = skipped.groupby(run).ffill().groupby(run).shift()
    after = skipped.groupby(run).bfill()
    rose = np.where(skipped.notna() & before.notna(), after > before, np.nan)
    rose[(after == before) | (after == 0)] = False
    rose[counts & (numbers(skipped) >= numbers(table["step"]))] = True
    rose[window > 0] = True
    rose[~counts & (window == 0)] = False
    if len(overflows):
        said = np.isin(np.arange(len(table)), positions(table, overflows, *STEP))
        printed = of_part(table, said) > 0
        skipped = skipped.mask(printed & ~counts & (skipped.groupby(run).transform("max") == 0))
        rose = np.where(printed, said, rose)
    table["skipped"] = skipped.astype("Int64")
    table["overflow"] = pd.Series(rose, table.index).astype("boolean")
