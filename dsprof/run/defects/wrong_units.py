"""Times and rates of whole steps that are printed in a wrong unit or of a wrong number of steps."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.recording.table import FLAVOUR
from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.table import STEP, Numbers, among, greatest, keys, numbers, where

_OF_PIPELINES: Final = ("deepspeed_pipeline.steps", "deepspeed_pipeline.steps_losses")

#: Steps that time stamps must lie apart.
ENOUGH: Final = 5

#: Samples/s, printed with three decimals: of less no two digits are known.
TELLING: Final = 0.01

DECIMALS: Final = 0.0005  #: what rounding takes from a rate or a time of three decimals, at most
LINES: Final = 3  #: that must prove the same

LONG: Final = 10.0  #: seconds of a step's longest timer, of which few jobs have as much

#: What milliseconds taken for seconds come to, beside what the clock shows of a step: its own
#: time, or the longest of its timers.
THOUSANDFOLD: Final = {True: (300.0, 3000.0), False: (100.0, 3000.0)}
STATED: Final = "stated"
TENFOLD: Final = 10.0  #: times the clock's step, by a rate of two decimals
AGREES: Final = 3.0  #: times the clock's step, that others may come to


def pipeline_1000x(events: pd.DataFrame, source: Source) -> Outcome:
    """0.6.2 and 0.6.3 took milliseconds for seconds: `iter time` x 1000, `samples/sec` / 1000."""
    times = pipeline_marks(events, "step_seconds")
    if not len(times) or not source.version.maybe("0.6.2", "0.6.3"):
        return events, None
    sure = source.version.surely("0.6.2", "0.6.3")
    if not (sure or _a_thousand_fold(events, times) or _beyond_timers(events, times)):
        return events, None
    rates = pipeline_marks(events, "samples_per_second")
    right = (rates["value"] * 1000).where(rates["value"] >= TELLING)
    fixed = events.assign(
        seconds=events["seconds"].mask(events.index.isin(times.index), events["seconds"] / 1000),
        value=events["value"].mask(events.index.isin(rates.index), right.reindex(events.index)),
    )
    text = (
        "iter time was printed 1000 times too long, samples/sec 1000 times too low (0.6.2, 0.6.3)"
    )
    return fixed, met("pipeline-1000x", "repair", text, times)


def _a_thousand_fold(events: pd.DataFrame, times: pd.DataFrame) -> bool:
    """The clock says that steps take about a thousandth of what their line says.

    The line itself is printed without a time: that of the line before it is taken.
    """
    at = events["at"].groupby([events["source"], events["segment"]], observed=True).ffill()
    passed = times["step"].diff().astype("float64")
    real = at[times.index].diff().dt.total_seconds() / passed.where(passed > 0)
    ratio = (times["seconds"] / real.where(real > 0)).median()
    return bool(300 < ratio < 3000)


def _beyond_timers(events: pd.DataFrame, times: pd.DataFrame) -> bool:
    """Steps take hundreds of times as long as the longest of their timers."""
    timers = events[(events["kind"] == Kind.PHASE) & events["step"].isin(times["step"].dropna())]
    timers = timers[timers["timers"].astype("str").str.startswith("pipeline").fillna(False)]
    longest = (timers["seconds"] / numbers(timers["steps"])).groupby(timers["step"]).max()
    ratio = (times.set_index("step")["seconds"] / longest[longest > 0]).median()
    return bool(ratio > 300)


def beyond_the_clock(events: pd.DataFrame, _: Source) -> Outcome:
    """Seconds a thousand times as many as the clock shows are milliseconds, if others of the
    source agree with the clock; if none does, either may be wrong."""
    by_clock = _step_by_clock(events)
    if by_clock.isna().all() or not len(rows := _times_of_steps(events)):
        return events, None
    times = rows["each"] / by_clock.reindex(rows["segment"]).to_numpy()
    if not (times > min(low for low, _ in THOUSANDFOLD.values())).any():
        return events, None
    longest = times.groupby([rows[name] for name in [*STEP, "what"]]).max()
    usual = longest.groupby("what").median().dropna()
    wrong = usual[[_in_milliseconds(str(what), usual[what]) for what in usual.index]]
    spoilt = rows[rows["what"].isin(wrong.index)]
    if usual.drop(wrong.index).between(0.0, AGREES, inclusive="right").any():
        text = (
            "times that are a thousand times as long as time stamps and the other lines show are "
            "milliseconds printed as seconds: divided by 1000"
        )
        right = events["seconds"].mask(events.index.isin(spoilt.index), events["seconds"] / 1000)
        found = met("milliseconds-as-seconds", "repair", text, spoilt)
        return (events.assign(seconds=right) if found else events), found
    text = (
        "times are hundreds of times as long as the time stamps of these lines lie apart: one of "
        "the two is wrong"
    )
    return events, met("times-beyond-clock", "doubt", text, spoilt)


def rates_of_one_update(events: pd.DataFrame, _: Source) -> Outcome:
    """On TPUs fairseq counts one update of an interval, and divides it by the time of all of them
    (`Trainer.train_step` logs "only every log_interval steps; this causes wps to be misreported").
    """
    by_clock = _step_by_clock(events)
    rates = where(events, among(events["name"], ["ups"]) & (numbers(events["value"]) > 0))
    if by_clock.isna().all() or rates.empty:
        return events, None
    times = 1 / numbers(rates["value"]) / by_clock.reindex(rates["segment"]).to_numpy()
    if not np.median(times) > TENFOLD:
        return events, None
    beside = among(events["name"], ["ups", "tokens_per_second", "global_batch_size"])
    wrong = where(events, beside & events["record"].isin(rates["record"]).to_numpy())
    text = (
        "wps, ups and bsz are of one update of each interval, divided by the time of all of them, "
        "as fairseq counts on TPUs: dropped"
    )
    fixed = events["value"].mask(events.index.isin(wrong.index))
    return events.assign(value=fixed), met("rates-of-one-update", "repair", text, wrong)


def _times_of_steps(events: pd.DataFrame) -> pd.DataFrame:
    """Times that lines of logs state of steps, and timers: `each`, of one step, `what` it is.

    A recording has its times from one clock, in one unit.
    """
    printed = events["pattern"].notna()
    stated = (
        printed & among(events["kind"], [Kind.METRIC]) & among(events["name"], ["step_seconds"])
    )
    timers = among(events["kind"], [Kind.PHASE]) & ~among(events["timers"], [FLAVOUR])
    told = events["seconds"].notna() & events["step"].notna()
    rows = where(events, told & (stated | timers))
    sums = numbers(rows["steps"])
    phase = among(rows["kind"], [Kind.PHASE])
    each = numbers(rows["seconds"]) / np.where(phase & (sums > 0), sums, 1.0)
    flavour = rows["timers"].astype("str").where(phase, STATED)
    return rows[[*STEP, "source", "line"]].assign(each=each, what=flavour.fillna(""))


def _in_milliseconds(what: str, times: float) -> bool:
    low, high = THOUSANDFOLD[what == STATED]
    return low < times < high


def _step_by_clock(events: pd.DataFrame) -> pd.Series[float]:
    """Segment → seconds of one step: the median of what lies between two stamped marks."""
    stamped = among(events["kind"], [Kind.METRIC]) & events["at"].notna().to_numpy()
    marks = where(events[[*STEP, "at"]], stamped & events["step"].notna().to_numpy())
    if marks.empty:
        return pd.Series(dtype="float64")
    ends = marks.iloc[greatest(marks, *STEP, "at")]
    same = np.diff(keys(ends, *STEP[:2]), prepend=-1) == 0
    passed = ends["step"].astype("float64").diff().where(same)
    elapsed = ends["at"].diff().dt.total_seconds()
    seconds = elapsed.where(elapsed > 0) / passed
    enough = passed.groupby(ends["segment"]).sum() >= ENOUGH
    usual: pd.Series[float] = seconds.groupby(ends["segment"]).median()
    return usual.where(enough)


def throughput_per_print(events: pd.DataFrame, source: Source) -> Outcome:
    """0.3.0 divided the pipeline's samples/sec by steps_per_print."""
    rates = pipeline_marks(events, "samples_per_second")
    if not len(rates) or not source.version.maybe("0.3.0", "0.3.0"):
        return events, None
    times = pipeline_marks(events, "step_seconds").drop_duplicates("record").set_index("record")
    seconds = rates["record"].map(times["seconds"])
    window = numbers(rates["steps"])
    batch = source.config.get("train_batch_size") or _batch_of(rates["value"], seconds, window)
    if not batch:
        return events, None
    too_low = batch / (rates["value"] * seconds)
    wrong = rates[(window > 1) & (np.abs(too_low / window - 1) < 0.02)]
    fixed = events["value"].mask(
        events.index.isin(wrong.index), batch / seconds.reindex(events.index)
    )
    text = "samples/sec was divided by steps_per_print once too often (0.3.0)"
    return events.assign(value=fixed), met("throughput-steps-per-print", "repair", text, wrong)


def _batch_of(rates: pd.Series[float], seconds: pd.Series[float], window: Numbers) -> float | None:
    """The samples of a step, where rates and times give no whole number of them, and as many
    times as a line has steps give the same one in each line: proof of the division."""
    told = rates * seconds
    unsure = DECIMALS * (rates + seconds)  # both were rounded
    whole = (told * window).round()
    divided = (told - told.round()).abs() > unsure
    divided &= (told * window - whole).abs() <= unsure * window
    same = (whole == whole.iloc[0]).all()
    proven = len(told) >= LINES and divided.all() and same
    return float(whole.iloc[0]) if proven and (unsure * window).max() < 0.25 else None


def rate_1000x(events: pd.DataFrame, _: Source) -> Outcome:
    """Megatron-DeepSpeed of BLOOM's first trainings divided the batch by milliseconds.

    The batch and the time stand beside the rate, of which they prove it: three decimals of a
    thousandth are few digits, so what they give takes its place.
    """
    lines = where(events, among(events["pattern"], ["megatron.iteration"]))
    by = ["source", "record"]
    rates = where(lines, among(lines["name"], ["samples_per_second"]))
    if not len(rates):
        return events, None
    batch, seconds = (
        rates[by].join(lines[lines["name"] == name].set_index(by)[column], on=by)[column]
        for name, column in (("global_batch_size", "value"), ("step_seconds", "seconds"))
    )
    real = (batch / seconds).where(seconds > 0)
    lower = (real - 1000 * rates["value"]).abs() <= 1000 * DECIMALS
    wrong = rates[lower & (real > 100 * rates["value"]) & (rates["value"] > 0)]
    if wrong.empty:
        return events, None
    value = real.reindex(events.index).where(events.index.isin(wrong.index), events["value"])
    text = (
        "samples per second were printed 1000 times too low: the batch and the time on their "
        "lines give the rate"
    )
    return events.assign(value=value), met("rate-1000x", "repair", text, wrong)


def monitor_1000x(events: pd.DataFrame, source: Source) -> Outcome:
    """0.6.2 to 0.7.7 multiplied the milliseconds that they gave to monitors by 1000.

    Where no version is known, times that long may still be true.
    """
    written = among(events["pattern"], ["csv_monitor.scalar"])
    rows = where(events, written & among(events["kind"], [Kind.PHASE]))
    if not len(rows) or not source.version.maybe("0.6.2", "0.7.7"):
        return events, None
    if source.version.surely("0.6.2", "0.7.7"):
        right = events["seconds"].mask(events.index.isin(rows.index), events["seconds"] / 1000)
        text = "a monitor was given times 1000 times too long (0.6.2 to 0.7.7): divided by 1000"
        return events.assign(seconds=right), met("monitor-1000x", "repair", text, rows)
    if not rows.groupby([*STEP])["seconds"].max().median() > LONG:
        return events, None
    text = (
        "DeepSpeed 0.6.2 to 0.7.7 wrote times 1000 times too long into csv files, and the version "
        "is unknown: all seconds may be too long by that, shares are right"
    )
    return events, met("monitor-1000x", "doubt", text, rows)


def pipeline_marks(events: pd.DataFrame, name: str) -> pd.DataFrame:
    """What the engine's own `steps: ... iter time (s)` lines say under a name."""
    marks = among(events["kind"], [Kind.METRIC]) & among(events["name"], [name])
    return where(events, marks & among(events["pattern"], _OF_PIPELINES))
