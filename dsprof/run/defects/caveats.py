"""What a source leaves out or measures otherwise than it seems: doubts, but for one repair."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.events import Kind
from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.steps.phases import CLOSING
from dsprof.run.steps.zero import ENGINE_TIMERS
from dsprof.run.table import STEP, among, known_rank, of_kind, where
from dsprof.run.versions import is_older


def last_micro_throughput(events: pd.DataFrame, source: Source) -> Outcome:
    """Up to 0.7.7 the current rate is that of the last micro-batch, which also steps.

    Of several micro-batches it is left out. Where their number is unknown, it may be right.
    """
    rates = among(events["pattern"], ["deepspeed.throughput_07"])
    current = rates & among(events["name"], ["samples_per_second"])
    many = _micro_batches(events[rates], source) if current.any() else 1.0
    if many == 1:
        return events, None
    name = "last-micro-throughput"
    if many is None:
        text = (
            "the current rate is that of the step's last micro-batch: of the step itself only if "
            "it has no other, and how many it has is unknown"
        )
        return events, met(name, "doubt", text, events[current])
    text = "the current rate is that of the step's last micro-batch, not of the step: left out"
    fixed = events.assign(value=events["value"].mask(current))
    return fixed, met(name, "doubt", text, events[current])


def _micro_batches(rates: pd.DataFrame, source: Source) -> float | None:
    """How many a step has, as the job was told, or as its throughput lines count both."""
    told = source.config.get("gradient_accumulation_steps")
    if told is not None:
        return float(told)
    counts = rates[among(rates["name"], ["micro_step"])]
    by = counts.groupby(["source", "segment", "engine"], observed=True)
    batches, steps = by["value"].diff(), by["step"].diff().astype("float64")
    each = (batches / steps)[(batches > 0) & (steps > 0)]  # an epoch counts them anew
    return float(each.median()) if len(each) else None


def memory_breakdown(events: pd.DataFrame, _: Source) -> Outcome:
    """see_memory_usage collects garbage on rank 0 inside the backward timers."""
    seen = among(events["pattern"], ["deepspeed_memory.see_memory"])
    looks = where(events, seen & among(events["name"], ["max_allocated"]) & events["step"].notna())
    names = ("backward", "backward_allreduce")
    if not len(looks):
        return events, None
    rows = of_kind(events, Kind.PHASE, *names)
    if _looks_a_step(looks, rows) < 4:
        return events, None  # it looks before and after forward, backward and step
    text = (
        "memory_breakdown collects garbage inside the backward timers: backward and its "
        "all-reduce are longer than without it"
    )
    return events, met("memory-breakdown-inflates-backward", "doubt", text, rows)


def _looks_a_step(looks: pd.DataFrame, rows: pd.DataFrame) -> float:
    """How often the engine looked in a usual step, or in a timed one that has no look at all: what
    ZeRO says of its memory while it is set up counts as the first step's, where no line says that
    the engine is ready."""
    seen = looks.groupby(list(STEP), observed=True).size()
    timed = rows[rows["step"].notna()].groupby(list(STEP), observed=True).size()
    return float(seen.reindex(seen.index.union(timed.index), fill_value=0).median())


def reduce_scatter_n_times(events: pd.DataFrame, _: Source) -> Outcome:
    """DeepSpeed multiplies by n a size that is the whole input already."""
    names = events["name"].cat.categories
    scatters = [name for name in names if str(name).startswith("reduce_scatter")]
    rows = _logged_comm(events, *scatters) if scatters else events[:0]
    text = (
        "DeepSpeed's bandwidths of reduce_scatter are too high (as many times as there are ranks, "
        "twice in 0.7.0): they were recomputed from size and time"
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


def _logged_comm(events: pd.DataFrame, *names: str) -> pd.DataFrame:
    rows = of_kind(events, Kind.COMM, *names)
    return where(rows, rows["pattern"].notna())


def hidden_lines(events: pd.DataFrame, source: Source) -> Outcome:
    """From 0.17.6 on INFO lines are hidden, from 0.15.2 on steps_per_print is unset."""
    marks = among(events["name"], CLOSING) & events["step"].notna()
    new = source.version.maybe("0.15.2") and not is_older(events, "0.15.2")
    if not new or marks.any():
        return events, None
    timed = where(events, among(events["kind"], [Kind.PHASE]) & _of_engine(events))
    if not len(timed):
        return events, None
    text = (
        "learning rate, skipped steps and throughput are unknown: DeepSpeed prints them only "
        'with steps_per_print set (0.15.2 and later) and log_level "info" (0.17.6 and later)'
    )
    return events, met("log-level-hides-lines", "doubt", text, timed.head(1))


def zero_stage_unknown(events: pd.DataFrame, source: Source) -> Outcome:
    """ZeRO 0 and 3 print the same forward and backward, of different content."""
    if source.mixture is None or 3 not in source.zero.stages or source.zero.stage == 3:
        return events, None
    rows = where(events[["source", "line"]], _of_engine(events))
    return events, met("zero-stage-unknown", "doubt", source.mixture.why, rows)


def _of_engine(events: pd.DataFrame) -> npt.NDArray[np.bool_]:
    return among(events["timers"], ENGINE_TIMERS)


def pipeline_reduction(events: pd.DataFrame, source: Source) -> Outcome:
    """PipelineEngine has no timer around its gradients' all-reduce."""
    if source.config.get("data_parallel_size", 1) == 1:
        return events, None
    rows = where(events, among(events["timers"], ["pipeline-p2p"]))
    text = (
        "the pipeline engine does not time the reduction of gradients: time of the step that no "
        "timer explains is attributed to it"
    )
    return events, met("pipeline-untimed-reduction", "doubt", text, rows)


def host_time_on_gpu(events: pd.DataFrame, _: Source) -> Outcome:
    """Recordings that began before their process used its GPU have the host's time alone."""
    told = of_kind(events, Kind.CONFIG, "phases_on", "gpu")
    host = where(told, among(told["name"], ["phases_on"]) & (told["text"] == "host"))
    if host.empty:
        return events, None
    told, host = known_rank(told), known_rank(host)
    users = told.loc[told["name"] == "gpu", ["segment", "rank"]].drop_duplicates()
    late = host[
        host.set_index(["segment", "rank"]).index.isin(users.to_records(index=False).tolist())
    ]
    text = (
        "recording began before the process used its GPU: phases are the time in which the host "
        "put work on the GPU, not the GPU's own"
    )
    return events, met("host-time-on-gpu", "doubt", text, late)
