"""Kinds of records: how many there are, and what the first and the last of them say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.corpus.reading import Check, Reading, Record
from dsprof import units

MS = 1e3  # a truth file says milliseconds, dsprof seconds
GIB = float(1 << 30)


@dataclass(frozen=True)
class Kind:
    """The patterns that read a kind of record, and truth key → (measure, truth units of one)."""

    patterns: tuple[str, ...]
    fields: Mapping[str, tuple[str, float]] = field(default_factory=dict)


MEMORY = {
    "mem_alloc_gb": ("allocated", 1 / GIB),
    "max_mem_alloc_gb": ("max_allocated", 1 / GIB),
}
ENGINE_STEP = Kind(("deepspeed.step",))
THROUGHPUT = Kind(
    ("deepspeed.throughput", "deepspeed.throughput_07", "deepspeed.throughput_01"),
    {
        "running_avg": ("samples_per_second_mean", 1),
        "samples_per_sec": ("samples_per_second_mean", 1),
        "value": ("samples_per_second_mean", 1),
        "curr": ("samples_per_second", 1),
        "step": ("micro_step", 1),  # `0/450` counts micro-batches
        **MEMORY,
    },
)
ITERATION = Kind(
    ("megatron.iteration", "megatron.iteration_equals"),
    {
        "total": ("total_steps", 1),
        "elapsed_ms": ("step_seconds", MS),
        "lm_loss": ("loss", 1),
        "samples_per_sec": ("samples_per_second", 1),
        "consumed_samples": ("samples", 1),
    },
)
PIPELINE = Kind(
    ("deepspeed_pipeline.steps", "deepspeed_pipeline.steps_losses"),
    {"iter_time_s": ("step_seconds", 1), "samples_per_sec": ("samples_per_second", 1)},
)
TIMERS = Kind(("deepspeed.timers", "deepspeed.moe_timers"))
LOSS = Kind(("huggingface.train",), {"learning_rate": ("lr", 1)})
CALL = Kind(("deepspeed_comms.op",))
TURN = Kind(
    ("deepspeed_chat.hybrid",),
    {
        "e2e_s": ("step_seconds", 1),
        "generate_s": ("generate", 1),
        "training_s": ("train", 1),
        "others_s": ("others", 1),
        "cur_samples_per_sec": ("samples_per_second", 1),
    },
)

#: Truth key → kind, where the truth holds `n` and `first` and `last` records.
KINDS: Mapping[str, Kind] = {
    "step_lines": ENGINE_STEP,
    "throughput_lines": THROUGHPUT,
    "iterations": ITERATION,
    "pipe_lines": PIPELINE,
    "timer_lines": TIMERS,
    "loss_lines": LOSS,
    "comm_op_lines": CALL,
    "e2e_lines": TURN,
}
#: Keys of a section that are no fields of its records.
ABOUT = {"n", "note", "lines", "values", "steps", "host", "sets", "all_zero", "inf_loss_steps"}
#: DeepSpeed's own bandwidths are computed anew, never read.
NOT_READ = {"algbw_gbps", "busbw_gbps"}
#: Flavours of DeepSpeed's timer lines, as truth files call them.
FLAVOURS = {"microstep": "zero-micro", "global": "zero", "optimizer": "zero-optimizer"}
#: Truth key of an iteration or a loss → column of `Run.steps`, and truth units of one.
COLUMNS = {
    "lm_loss": ("loss", 1),
    "loss": ("loss", 1),
    "grad_norm": ("grad_norm", 1),
    "loss_scale": ("loss_scale", 1),
    "tflops": ("tflops", 1),
    "samples_per_sec": ("samples_per_second", 1),
    "elapsed_ms": ("seconds", MS),
    "iter_time_s": ("seconds", 1),
    "skipped": ("skipped", 1),
}


def counted(name: str, truth: Any, reading: Reading) -> Iterator[Check]:
    """A section of the truth against the records of its kind."""
    kind = KINDS[name]
    records = reading.of(*kind.patterns)
    if isinstance(truth, int):
        truth = {"n": truth}
    elif isinstance(truth, list):  # each record of a short log
        truth = {"n": len(truth), "values": truth}
    yield Check(name, "n", truth["n"], len(records))
    for place, told in placed(truth):
        record = records[place] if -len(records) <= place < len(records) else None
        yield from fields(f"{name}.{_word(place)}", told, record, kind)
    for word, flavour in FLAVOURS.items():
        found = [record for record in records if record.timers == flavour]
        if word in truth.get("sets", {}):
            yield Check(name, f"sets.{word}", truth["sets"][word], len(found))
        for key in {word, f"last_{word}"} & truth.keys():
            yield from fields(f"{name}.{key}", truth[key], found[-1] if found else None, kind)
    if "host" in truth:
        yield Check(name, "host", [truth["host"]], sorted({r.host or "" for r in records}))


def placed(truth: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Place among the records (-1: the last) and what stands there."""
    ends = {"first": 0, "last": -1}
    yield from ((place, truth[end]) for end, place in ends.items() if end in truth)
    for key in ("lines", "values", "steps"):
        for place, told in enumerate(truth.get(key, ())):
            yield place, told if isinstance(told, dict) else {key.removesuffix("s"): told}
    shared = {k: v for k, v in truth.items() if k not in ABOUT and not isinstance(v, dict)}
    if shared:  # said once, of all of them
        yield from ((place, shared) for place in range(truth["n"]))


def fields(
    place: str, told: Mapping[str, Any], record: Record | None, kind: Kind
) -> Iterator[Check]:
    name, _, where = place.partition(".")
    for key in told.keys() - NOT_READ:
        value = told[key]
        if key in {"host", "op"}:
            yield Check(name, f"{where}.{key}", value, record and _text(record, key))
        elif key == "step" and value == 0:  # printed at set-up: no optimizer step
            yield Check(name, f"{where}.{key}", None, record and record.step)
        else:
            yield Check(name, f"{where}.{key}", _number(value), _measure(record, key, kind))


def _text(record: Record, key: str) -> str | None:
    return record.host if key == "host" else record.names[0]


def _number(value: Any) -> Any:
    """The first of several parameter groups speaks for the step; a size is bytes."""
    if isinstance(value, list):
        return value[0]
    return units.size(value) if isinstance(value, str) else value


def _measure(record: Record | None, key: str, kind: Kind) -> float | None:
    if record is None:
        return None
    if key in {"step", "iteration"} and key not in kind.fields and kind is not TIMERS:
        return record.step
    if kind is CALL:
        return record.bytes if key == "size" else (record.seconds or 0.0) * MS
    name, scale = kind.fields.get(key, (key, MS if kind is TIMERS else 1))
    value = record[name]
    return None if value is None else value * scale


def _word(place: int) -> str:
    return {0: "first", -1: "last"}.get(place, str(place))


def stepped(name: str, truth: Mapping[str, Any], reading: Reading) -> Iterator[Check]:
    """The same numbers in `Run.steps`, where the truth names the step."""
    for end in ("first", "last"):
        told = truth.get(end, {})
        step = told.get("iteration", told.get("step"))
        row = reading.step(step)
        for key in told.keys() & COLUMNS.keys() if step else ():  # step 0 is no step
            if told[key] is not None:
                column, scale = COLUMNS[key]
                found = row[column] * scale if column in row else None
                yield Check(name, f"Run.steps[{step}].{column}", told[key], found)


def timers(name: str, truth: Mapping[str, Any], reading: Reading) -> Iterator[Check]:
    """Megatron's timers, each line the mean of one iteration; `Run.phases` says the same."""
    records = [r for r in reading.of(*TIMERS.patterns) if r.timers != "megatron-setup"]
    yield Check(name, "n", truth["n"], len(records))
    if truth.get("all_zero"):
        yield Check(name, "phases of zeros", 0, len(reading.run.phases))
    for place, told in placed(truth):
        record = records[place] if records else None
        yield from fields(f"{name}.{_word(place)}", told, record, TIMERS)
        seconds = reading.phases(record.step if record else None)
        for key, value in told.items():
            found = seconds[key] * MS if key in seconds else None
            yield Check(name, f"Run.phases.{_word(place)}.{key}", value, found)
