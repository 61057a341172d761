"""How the run was laid out: the facts beside the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import averaged_steps, mean_of
from dsprof.analysis.rates import batch_of, rate_of_steps, samples_per_second
from dsprof.page import words
from dsprof.page.clock import Moment, span
from dsprof.page.model import Among, Cell, Place
from dsprof.page.proofs import among, ends_of, rate_lines
from dsprof.text.overview import overview, rate_of
from dsprof.units import format_count, format_seconds

if TYPE_CHECKING:
    from dsprof.run import Run


def facts(run: Run) -> list[tuple[str, Cell]]:
    """What is known of the run, each with the lines that tell it where some do."""
    known = {**run.config, **run.meta}
    said = {
        "Framework": _framework(known, run.told["pattern"]),
        "Ranks": _ranks(known),
        "Parallel layout": _parallel(known),
        "ZeRO stage": _zero(known),
        "Batch": _batch(known),
        "Model": _model(known),
        "Network": known.get("network"),
        "Steps": _steps(run.steps, run.steps_were, counted=run.counted),
        "Launches": _launches(run.told["segment"]),
        "Time": _time(span(run.meta.get("sources") or [], run.told), utc=run.is_recorded_alone),
        "Read from": _sources(known),
        "Throughput": _throughput(run),
    }
    said["Not told"] = _lacking(known, said)
    rows = run.told[run.told["kind"] == "config"]
    return [
        (label, told if isinstance(told, Cell) else _proved(str(told), label, rows, known))
        for label, told in said.items()
        if told
    ]


#: What of the layout a reader looks for, by the words for it: a missing row would not say why.
_LAYOUT: Final = {
    "Ranks": "ranks",
    "Parallel layout": "parallel layout",
    "ZeRO stage": "ZeRO stage",
    "Batch": "batch sizes",
}


def _lacking(known: dict[str, Any], said: dict[str, Any]) -> str:
    """What of the layout and the versions the source does not tell."""
    lacking = [noun for label, noun in _LAYOUT.items() if not said[label]]
    told = known.get("torch_version") or words.deepspeed(known)
    versions = [] if told else ["versions"]
    return ", ".join(lacking + versions)


_PARALLEL: Final = ("data", "tensor", "pipeline", "expert", "sequence")

#: Facts that lines of the configuration state, each number by its own.
_PROVED_BY: Final = {
    "Ranks": ("world_size", "nodes"),
    "ZeRO stage": ("zero_stage", "offload_optimizer", "offload_param"),
    "Batch": ("train_batch_size", "micro_batch_size", "gradient_accumulation_steps"),
    "Model": ("parameters", "dtype", "seq_length"),
    "Network": ("network",),
    "Framework": ("deepspeed_version", "torch_version", "nccl_version"),
    "Parallel layout": tuple(f"{kind}_parallel_size" for kind in _PARALLEL),
}


def _proved(text: str, label: str, rows: pd.DataFrame, known: dict[str, Any]) -> Cell:
    """A fact with the lines that state its numbers; a number that follows from others has none."""
    lines = [
        (name.replace("_", " "), place)
        for name in _PROVED_BY.get(label, ())
        for place in [_where(rows[rows["name"] == name], known.get(name))]
        if place
    ]
    if len(lines) == 1:
        return Cell(text, lines[0][1])
    return Cell(text, among=Among(tuple(lines), len(lines)) if lines else None)


def _where(rows: pd.DataFrame, value: Any) -> Place | None:
    """The last line that says so."""
    said = rows["value"].astype("object").where(rows["value"].notna(), rows["text"])
    rows = rows[(said == value).fillna(False).to_numpy(dtype=bool)]
    return Place.of(str(rows["source"].iloc[-1]), rows["line"].iloc[-1]) if len(rows) else None


def _framework(known: dict[str, Any], patterns: pd.Series[Any]) -> str:
    """Versions and the framework; that lines look like the Trainer's does not say it ran."""
    versions = {
        "DeepSpeed": words.deepspeed(known),
        "PyTorch": known.get("torch_version"),
        "NCCL": known.get("nccl_version"),
    }
    said = [f"{name} {value}" for name, value in versions.items() if value]
    framework = words.FRAMEWORK.get(str(known.get("framework")), known.get("framework"))
    if framework and not (framework == "DeepSpeed" and versions["DeepSpeed"]):
        said.insert(0, str(framework))
    own = known.get("framework") == "huggingface" and not versions["DeepSpeed"]
    if own and patterns.astype("str").str.startswith("deepspeed").any():
        said.insert(0, "DeepSpeed")
    return ", ".join(said)


def _ranks(known: dict[str, Any]) -> str:
    ranks = known.get("world_size")
    if not ranks:
        return ""
    said = f"{format_count(ranks)} {words.on_hosts(known)}".strip()
    return ", ".join(filter(None, [said, words.partly_recorded(known)]))


def _parallel(known: dict[str, Any]) -> str:
    sizes = {kind: known.get(f"{kind}_parallel_size") for kind in _PARALLEL}
    return ", ".join(f"{kind} {size}" for kind, size in sizes.items() if size)


def _zero(known: dict[str, Any]) -> str:
    stage = known.get("zero_stage")
    if not words.known(stage):
        return ""
    away = [
        f"{part} on {known[key]}"
        for part, key in (("optimizer", "offload_optimizer"), ("parameters", "offload_param"))
        if known.get(key) not in (None, "none")
    ]
    return ", ".join([str(stage), *away])


def _batch(known: dict[str, Any]) -> str:
    micro, times, whole = (
        known.get(k)
        for k in ("micro_batch_size", "gradient_accumulation_steps", "train_batch_size")
    )
    said = [
        f"{format_count(whole)} samples a step" if whole else "",
        f"micro-batch {micro}" if micro else "",
        words.count_of(int(times), "accumulation step") if times else "",
    ]
    return ", ".join(filter(None, said))


def _model(known: dict[str, Any]) -> str:
    size = known.get("parameters")
    said = [f"{format_count(size)} parameters" if size else "", str(known.get("dtype") or "")]
    length = known.get("seq_length")
    return ", ".join(
        filter(None, [*said, f"{format_count(length)} tokens a sample" if length else ""])
    )


def _steps(steps: pd.DataFrame, how: str, *, counted: bool) -> Cell | None:
    """How many steps there are, by the lines of the first and the last."""
    if steps.empty:
        return None
    number = steps["step"].to_numpy(dtype=np.int64)
    low, high = steps.iloc[int(number.argmin())], steps.iloc[int(number.argmax())]
    ends = {w: Place.of(row["source"], row["line"]) for w, row in (("first", low), ("last", high))}
    said = words.of_records(steps) if counted else _numbered(number, how)
    return Cell(said, among=ends_of(ends, len(steps)))


def _numbered(number: np.ndarray, how: str) -> str:
    many, low, high = words.count_of(len(number), "step"), number.min(), number.max()
    return f"{many} {how}, " + (f"step {low:,}" if low == high else f"{low:,} to {high:,}")


def _launches(segment: pd.Series[Any]) -> str:
    count = len(segment.unique())
    return f"{count:,}, one after another" if count > 1 else ""


#: Units of rates other than samples, and the columns of steps that have them.
_RATES: Final = {
    "tokens/s": "tokens_per_second",
    "TFLOP/s a GPU": "tflops",
}


def _throughput(run: Run) -> Cell | None:
    """Rates of the steps judged, means like their seconds; else as the source sums them up."""
    steps, events = run.steps, run.told
    main = averaged_steps(steps)
    rates = {"samples/s": samples_per_second(run, main)}
    rates |= {unit: mean_of(main, column) for unit, column in _RATES.items()}
    said = [f"{format_count(rate)} {unit}" for unit, rate in rates.items() if words.known(rate)]
    if main["samples_per_second"].notna().any():
        less = rate_of_steps(main, mean_of(main, "seconds"), batch_of(run, main))
        lines = rate_lines(main, events, run.phases)
        if less:
            seen = overview(run)
            of_all = seen.samples_per_second_counted or seen.samples_per_second_mean
            return Cell(rate_of(less, rates["samples/s"], of_all, ", mean,"), among=lines)
        return Cell(f"{', '.join(said)}, mean", among=lines)
    if said:
        return Cell(f"{', '.join(said)}, mean")
    told = events[(events["name"] == "samples_per_second_mean").to_numpy(dtype=bool)]
    told = told[told["value"].notna()]
    if told.empty:
        return None
    last = format_count(float(told["value"].iloc[-1]))
    return Cell(
        f"{last} samples/s, as the source sums up", among=among(told, "value", largest="highest")
    )


def _time(told: tuple[Moment, Moment] | None, *, utc: bool) -> Cell | None:
    """When the run began and how long it lasted, by the first and the last line with a time."""
    if told is None:
        return None
    first, last = told
    zone = " UTC" if utc or first.at.tzinfo else ", the log's own clock"
    long = (last.at - first.at).total_seconds()
    lasting = f", for {format_seconds(long)}" if long > 0 else ""
    ends = {"first": first.place, "last": last.place}
    return Cell(f"{first.at:%Y-%m-%d %H:%M:%S}{zone}{lasting}", among=ends_of(ends))


def _sources(known: dict[str, Any]) -> str:
    names = [str(s).rsplit("/", 1)[-1] for s in known.get("sources") or []]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
