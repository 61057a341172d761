"""The defects themselves. Sources: DeepSpeed's history, and real runs of its versions."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.events import Kind
from dsprof.recording.table import FLAVOUR
from dsprof.run.clocks import clock_runs_backwards
from dsprof.run.cumulative import cumulative_comm_latency, cumulative_moe_timers, summary_table
from dsprof.run.phases import CLOSING, words_of
from dsprof.run.repairs import Defect, Repair, Source, met
from dsprof.run.table import among, keys, known_rank, numbers, of_kind, where
from dsprof.run.unread import cut_head, cut_short
from dsprof.run.windows import lone_print
from dsprof.run.zero import ENGINE_TIMERS

#: Seconds; no phase, call or step of a training takes longer (a year has 31.6e6).
LONGEST: Final = 1e8

RATES: Final = (
    "samples_per_second", "samples_per_second_mean", "tokens_per_second",
    "tokens_per_second_gpu", "tflops", "mfu",
)  # fmt: skip
_OF_TIMERS: Final = (
    "segment", "engine", "step", "rank", "name", "timers", "seconds", "record", "source", "line",
)  # fmt: skip
CLOCK: Final = 1e-4  #: seconds; what two timers of one interval may differ by
MOST: Final = 0.9  #: of the lines that could show a defect, before they prove it
FASTEST: Final = 1e18  #: of anything, per second

Outcome = tuple[pd.DataFrame, Repair | None]


def impossible_seconds(events: pd.DataFrame, _: Source) -> Outcome:
    """Durations that no clock reads: nan, infinite, below zero, or of years.

    The other timers of such a line would pass for a whole step: they go too.
    """
    odd = ~events["seconds"].between(0.0, LONGEST)
    timers = _are_timer_lines(events)
    spoilt = odd & (events["seconds"].notna() | timers)
    if not spoilt.any():
        return events, None
    lines = events.loc[odd & timers, "record"]
    wrong = events[(odd & events["seconds"].notna()) | (timers & events["record"].isin(lines))]
    text = (
        "durations that are nan, negative, infinite or of years measure nothing; they and the "
        "timers beside them were dropped"
    )
    return _without_seconds(events, wrong), met("impossible-seconds", "repair", text, wrong)


def initial_step_zero(events: pd.DataFrame, _: Source) -> Outcome:
    """Every version prints `step=0` once when the engine is made: no step was taken."""
    rows = events["step"] == 0
    text = "the line with step=0 is printed when the engine is made and is no training step"
    fixed = events.assign(step=events["step"].mask(rows))
    return (
        (fixed, met("initial-step-zero", "repair", text, events[rows]))
        if rows.any()
        else (events, None)
    )


def impossible_rates(events: pd.DataFrame, _: Source) -> Outcome:
    """Rates, and times of whole steps, that are zero, negative or infinite."""
    metrics = events["kind"] == Kind.METRIC
    rates = metrics & events["name"].isin(RATES) & events["value"].notna()
    odd = rates & ~events["value"].between(0.0, FASTEST, inclusive="right")
    still = metrics & (events["name"] == "step_seconds") & (events["seconds"] == 0)
    text = "rates and step times that are zero, negative or infinite measure nothing: dropped"
    found = met("impossible-rates", "repair", text, events[odd | still])
    if found is None:
        return events, None
    fixed = events.assign(value=events["value"].mask(odd), seconds=events["seconds"].mask(still))
    return fixed, found


def zero_global_timers(events: pd.DataFrame, source: Source) -> Outcome:
    """0.6.2 to 0.18.2 with a monitor read the timers before printing them: 0.00 in the line.

    The micro-batch lines stay right; with the zeros gone they make up the step.
    """
    if not (events["seconds"] == 0).any():
        return events, None
    rows = _timers_of_steps(events, source)
    zero = ~rows["micro"] & (rows["seconds"] == 0)
    if not zero.any():
        return events, None
    told = rows.loc[rows["micro"] & (rows["seconds"] > 0), "timer"].unique()
    wrong = rows[zero & rows["timer"].isin(told)]
    text = (
        "the step's timers read 0.00 although its micro-batches took time (a monitor read "
        "them first); they were rebuilt from the micro-batch lines"
    )
    return _without_seconds(events, wrong), met("zero-global-timers", "repair", text, wrong)


def all_zero_timers(events: pd.DataFrame, source: Source) -> Outcome:
    """A timer line of nothing but zeros says nothing (Megatron's own, under DeepSpeed).

    Set-up timers may well round to zero.
    """
    if not (events["seconds"] == 0).any():
        return events, None
    rows = _timer_lines(events)
    set_up = [name for name, flavour in source.flavours.items() if flavour.sums == "once"]
    rows = rows[~rows["timers"].isin(set_up) & rows["seconds"].notna()]
    most = rows["seconds"].groupby(rows["record"]).transform("max")
    wrong = rows[most == 0]
    text = "timer lines that hold only zeros measure nothing and were dropped"
    return _without_seconds(events, wrong), met("all-zero-timers", "repair", text, wrong)


def _timer_lines(events: pd.DataFrame) -> pd.DataFrame:
    """Timers that a log printed; those of a recording have none of its defects."""
    return where(events[list(_OF_TIMERS)], _are_timer_lines(events))


def _are_timer_lines(events: pd.DataFrame) -> pd.Series[bool]:
    printed = events["timers"].notna() & ~among(events["timers"], [FLAVOUR])
    return printed & among(events["kind"], [Kind.PHASE])


def _timers_of_steps(events: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Timer rows that belong to a step, with `micro`: of one micro-batch, and `timer`: equal for
    rows that tell of the same interval of the same step and rank."""
    rows = _timer_lines(events)
    rows = rows[rows["step"].notna()]
    words, which = words_of(rows, source.flavours)
    names, _ = pd.factorize(np.array([word.name for word in words], dtype=object))
    span = keys(known_rank(rows), "segment", "engine", "step", "rank")
    return rows.assign(
        micro=np.array([word.sums == "micro" for word in words], bool)[which],
        timer=span * max(len(words), 1) + names[which],
    )


def _without_seconds(events: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    return (
        events.assign(seconds=events["seconds"].mask(events.index.isin(rows.index)))
        if len(rows)
        else events
    )


def _pipeline_marks(events: pd.DataFrame, name: str) -> pd.DataFrame:
    """Marks of the engine's own `steps: ... iter time (s)` line."""
    rows = events[(events["name"] == name) & (events["kind"] == Kind.METRIC)]
    pattern = rows["pattern"].astype("str").fillna("")
    return rows[pattern.str.startswith("deepspeed") & pattern.str.contains("pipe")]


def pipeline_1000x(events: pd.DataFrame, source: Source) -> Outcome:
    """0.6.2 and 0.6.3 took milliseconds for seconds: `iter time` x 1000, `samples/sec` / 1000."""
    times = _pipeline_marks(events, "step_seconds")
    if not len(times) or not source.version.maybe("0.6.2", "0.6.3"):
        return events, None
    sure = source.version.surely("0.6.2", "0.6.3")
    if not (sure or _a_thousand_fold(events, times) or _beyond_timers(events, times)):
        return events, None
    rates = _pipeline_marks(events, "samples_per_second")
    fixed = events.assign(
        seconds=events["seconds"].mask(events.index.isin(times.index), events["seconds"] / 1000),
        value=events["value"].mask(events.index.isin(rates.index), events["value"] * 1000),
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


def throughput_per_print(events: pd.DataFrame, source: Source) -> Outcome:
    """0.3.0 divided the pipeline's samples/sec by steps_per_print."""
    batch = source.config.get("train_batch_size")
    rates = _pipeline_marks(events, "samples_per_second")
    if not batch or not len(rates) or not source.version.maybe("0.3.0", "0.3.0"):
        return events, None
    times = _pipeline_marks(events, "step_seconds").drop_duplicates("record").set_index("record")
    seconds = rates["record"].map(times["seconds"])
    too_low = batch / (rates["value"] * seconds)
    window = numbers(rates["steps"])
    wrong = rates[(window > 1) & (np.abs(too_low / window - 1) < 0.02)]
    fixed = events["value"].mask(
        events.index.isin(wrong.index), batch / seconds.reindex(events.index)
    )
    text = "samples/sec was divided by steps_per_print once too often (0.3.0)"
    return events.assign(value=fixed), met("throughput-steps-per-print", "repair", text, wrong)


def last_interval_only(events: pd.DataFrame, source: Source) -> Outcome:
    """0.4.0 to 0.5.6 overwrote timers instead of adding up.

    Where a step's micro-batches have lines too, they prove it, and make up the step.
    """
    possible = source.version.maybe("0.4.0", "0.5.6")
    wrong = _last_of_several(events, source) if possible else events.iloc[:0]
    if len(wrong):
        text = (
            "the step's timers hold its last micro-batch only (as 0.4.0 to 0.5.6 print them); "
            "they were rebuilt from the micro-batch lines"
        )
        found = met("last-interval-only", "repair", text, wrong)
        return _without_seconds(events, wrong), found
    if not source.version.surely("0.4.0", "0.5.6"):
        return events, None
    whole = source.config.get("gradient_accumulation_steps") == 1
    sums = {
        name
        for name, flavour in source.flavours.items()
        if flavour.sums == "window" or (flavour.sums == "step" and not whole)
    }
    rows = events[(events["kind"] == Kind.PHASE) & events["timers"].isin(sums)]
    text = (
        "this version keeps only the last interval of a timer: its sums over micro-batches "
        "and steps are too small"
    )
    return events, met("last-interval-only", "doubt", text, rows)


def _last_of_several(events: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Timers of whole steps that equal the last of several micro-batches and not their sum."""
    micro = {name for name, flavour in source.flavours.items() if flavour.sums == "micro"}
    if not micro & set(events["timers"].dropna().unique()):
        return events.iloc[:0]
    rows = _timers_of_steps(events, source)
    rows = rows[rows["seconds"].notna()]
    batches = rows[rows["micro"]].groupby("timer")["seconds"].agg(["sum", "last", "size"])
    steps = rows[~rows["micro"]].join(batches[batches["size"] > 1], on="timer", how="inner")
    telling = steps[steps["sum"] > 1.2 * steps["last"] + CLOCK]
    last = (telling["seconds"] - telling["last"]).abs() <= 0.02 * telling["last"] + CLOCK
    return steps.loc[:, rows.columns] if len(telling) and last.mean() > MOST else steps.iloc[:0]


def last_micro_throughput(events: pd.DataFrame, source: Source) -> Outcome:
    """Up to 0.7.7 the current rate is that of the last micro-batch, which also steps."""
    if source.config.get("gradient_accumulation_steps", 1) == 1:
        return events, None
    rows = events[
        (events["pattern"] == "deepspeed.throughput_07") & (events["name"] == "samples_per_second")
    ]
    text = "the current rate is that of the step's last micro-batch, not of the step"
    return events, met("last-micro-throughput", "doubt", text, rows)


def memory_breakdown(events: pd.DataFrame, _: Source) -> Outcome:
    """see_memory_usage collects garbage on rank 0 inside the backward timers."""
    looks = events[(events["pattern"] == "deepspeed_memory.see_memory") & events["step"].notna()]
    looks = looks[looks["name"] == "max_allocated"]
    if (
        not len(looks)
        or looks.groupby(keys(looks, "segment", "engine", "step")).size().median() < 4
    ):
        return events, None  # it looks before and after forward, backward and step
    names = ("backward", "backward_allreduce")
    rows = events[(events["kind"] == Kind.PHASE) & events["name"].isin(names)]
    text = (
        "memory_breakdown collects garbage inside the backward timers: backward and its "
        "all-reduce are longer than without it"
    )
    return events, met("memory-breakdown-inflates-backward", "doubt", text, rows)


def _logged_comm(events: pd.DataFrame) -> pd.DataFrame:
    rows = of_kind(events, Kind.COMM)
    return rows[rows["pattern"].notna()]


def reduce_scatter_n_times(events: pd.DataFrame, _: Source) -> Outcome:
    """DeepSpeed multiplies by n a size that is the whole input already."""
    rows = _logged_comm(events)
    rows = rows[rows["name"].astype("str").str.startswith("reduce_scatter").fillna(False)]
    text = (
        "DeepSpeed's bandwidths of reduce_scatter are n times too high; they were computed "
        "anew from size and time"
    )
    return events, met("reduce-scatter-n-times", "repair", text, rows)


def subgroup_bandwidth(events: pd.DataFrame, source: Source) -> Outcome:
    """The logger takes n to be all ranks, also for an op of a smaller group."""
    split = ("tensor_parallel_size", "pipeline_parallel_size", "expert_parallel_size")
    if not any(source.config.get(name, 1) > 1 for name in split):
        return events, None
    text = (
        "groups smaller than the world communicate too, and their lines do not name their "
        "size: bus bandwidths assume all ranks"
    )
    return events, met("subgroup-bandwidth", "doubt", text, _logged_comm(events))


def hidden_lines(events: pd.DataFrame, source: Source) -> Outcome:
    """From 0.17.6 on INFO lines are hidden, from 0.15.2 on steps_per_print is unset."""
    marks = among(events["name"], CLOSING) & events["step"].notna()
    if not source.version.maybe("0.15.2") or marks.any():
        return events, None
    timed = where(events, among(events["kind"], [Kind.PHASE]) & _of_engine(events))
    if not len(timed):
        return events, None
    text = (
        "learning rate, skipped steps and throughput are unknown: DeepSpeed prints them only "
        'with steps_per_print set (0.15.2 and later) and log_level "info" (0.17.6 and later)'
    )
    return events, met("log-level-hides-lines", "doubt", text, timed.head(1))


def _of_engine(events: pd.DataFrame) -> npt.NDArray[np.bool_]:
    return among(events["timers"], ENGINE_TIMERS)


def zero_stage_unknown(events: pd.DataFrame, source: Source) -> Outcome:
    """ZeRO 0 and 3 print the same forward and backward, of different content."""
    if source.mixture is None or 3 not in source.zero.stages or source.zero.stage == 3:
        return events, None
    rows = where(events[["source", "line"]], _of_engine(events))
    return events, met("zero-stage-unknown", "doubt", source.mixture.why, rows)


def pipeline_reduction(events: pd.DataFrame, source: Source) -> Outcome:
    """PipelineEngine has no timer around its gradients' all-reduce."""
    if source.config.get("data_parallel_size", 1) == 1:
        return events, None
    rows = events[events["timers"] == "pipeline-p2p"]
    text = (
        "the pipeline engine does not time the reduction of gradients: what no timer of the "
        "step explains is taken for it"
    )
    return events, met("pipeline-untimed-reduction", "doubt", text, rows)


def phases_exceed_step(events: pd.DataFrame, steps: pd.DataFrame) -> Repair | None:
    """`steps`: those whose timers and logged calls sum to clearly more than the step.

    Maxima over the ranks, as Megatron prints them, do so by nature.
    """
    if (events["pattern"] == "megatron.timers_minmax").any():
        return None
    text = (
        "the timers and logged calls of these steps sum to more than the step: one of the two is "
        "wrong, and the seconds per class were scaled down to the step"
    )
    return met("phases-exceed-step", "doubt", text, steps)


def timers_contradict(found: pd.DataFrame) -> Repair | None:
    """`found`: as `dsprof.run.phases.contradictions` gives them."""
    if not len(found):
        return None
    named = (found["raw"].astype("str") + " is shorter than " + found["inside"]).unique()
    text = (
        f"timers contradict each other: {'; '.join(named[:3])} inside it, and where the time of "
        "these steps went is unknown"
    )
    return met("timers-contradict", "doubt", text, found)


def long_pauses(steps: pd.DataFrame) -> Repair | None:
    """`steps`: those before which a launch that only the clock times printed nothing for long."""
    text = (
        "before these lines the job printed nothing for more than half an hour, many times what "
        "is usual: a pause (suspended, waiting, a long evaluation), left out of step times"
    )
    return met("pause", "repair", text, steps)


def host_time_on_gpu(events: pd.DataFrame, _: Source) -> Outcome:
    """Recordings that began before their process used its GPU have the host's time alone."""
    told = known_rank(of_kind(events, Kind.CONFIG))
    host = told[(told["name"] == "phases_on") & (told["text"] == "host")]
    users = told.loc[told["name"] == "gpu", ["segment", "rank"]].drop_duplicates()
    late = host[
        host.set_index(["segment", "rank"]).index.isin(users.to_records(index=False).tolist())
    ]
    text = (
        "recording began before the process used its GPU: phases are the time in which the host "
        "put work on the GPU, not the GPU's own"
    )
    return events, met("host-time-on-gpu", "doubt", text, late)


DEFECTS: Final[tuple[Defect, ...]] = (
    impossible_seconds,
    impossible_rates,
    cut_short,
    cut_head,
    initial_step_zero,
    zero_global_timers,
    all_zero_timers,
    cumulative_comm_latency,
    summary_table,
    cumulative_moe_timers,
    clock_runs_backwards,
    pipeline_1000x,
    lone_print,
    throughput_per_print,
    last_interval_only,
    last_micro_throughput,
    memory_breakdown,
    reduce_scatter_n_times,
    subgroup_bandwidth,
    hidden_lines,
    zero_stage_unknown,
    pipeline_reduction,
    host_time_on_gpu,
)
