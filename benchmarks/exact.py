"""Compare a log's truth with what was read: what is missing, wrong or invented."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: (pattern, the table's `raw`, column that holds the number); ALL: whatever the raw word is.
Target = tuple[str, str, str]
ALL = "*"

#: Kind of record → the pattern that reads it.
PATTERNS = {
    "ds_step": "deepspeed.step",
    "ds_throughput": "deepspeed.throughput",
    "time_micro": "deepspeed.timers",
    "time_global": "deepspeed.timers",
    "time_zero_opt": "deepspeed.timers",
    "time_deeper": "deepspeed.timers",
    "comm_op": "deepspeed_comms.op",
    "see_memory": "deepspeed_memory.see_memory",
    "overflow": "deepspeed.overflow",
    "pipe_steps": "deepspeed_pipeline.steps",
    "pipe_pct": "",  # one a line: see PATTERN_OF_WORD
    "megatron_iter": "megatron.iteration",
    "hf_log": "huggingface.train",
}
#: Words that the table says otherwise than the log; "" for what it says in another column.
WORDS = {
    "ds_step": {"step": ""},
    "ds_throughput": {
        "RunningAvgSamplesPerSec": "samples_per_second_mean",
        "CurrSamplesPerSec": "samples_per_second",
        "MemAllocated": "allocated",
        "MaxMemAllocated": "max_allocated",
    },
    "comm_op": {"time (ms)": ALL, "msg size": ALL},
    "see_memory": {
        "MA": "allocated",
        "Max_MA": "max_allocated",
        "CA": "reserved",
        "Max_CA": "max_reserved",
        "used": "host_used",
        "percent": "host_percent",
    },
    "overflow": {"attempted": "", "reduced": "loss_scale"},
    "pipe_steps": {
        "steps": "",
        "iter time (s)": "step_seconds",
        "samples/sec": "samples_per_second",
    },
    "pipe_pct": {
        "comms": "communication_percent",
        "optimizer_step": "optimizer_percent",
        "forward": "forward_percent",
        "backward": "backward_percent",
    },
    "megatron_iter": {"iteration": "", "total": "total_steps"},
}
#: Words of records that several patterns read, a line each.
PATTERN_OF_WORD = {
    "host_used": "deepspeed_memory.host_memory",
    "host_percent": "deepspeed_memory.host_memory",
    "communication_percent": "gpt_neox.percent_comms",
    "optimizer_percent": "gpt_neox.percent_optimizer",
    "forward_percent": "gpt_neox.percent_forward",
    "backward_percent": "gpt_neox.percent_backward",
}
#: Told beside what a line prints: a constant, or its text.
BESIDE = {("deepspeed.overflow", "overflow")}

RELATIVE = 1e-9  # sums of a million floats in another order


@dataclass(frozen=True)
class Fault:
    """What is the matter with a key, and with how many of its values."""

    text: str
    count: int


@dataclass
class Sums:
    """What all values of one key in the table come to."""

    count: float = 0
    total: float = 0.0
    times_step: float = 0.0

    def add(self, count: float, total: float, times_step: float) -> None:
        self.count += count
        self.total += total
        self.times_step += times_step


@dataclass
class Comparison:
    """Faults by their nature. `unplaced`: right numbers at a wrong step."""

    missing: list[Fault] = field(default_factory=list)
    wrong: list[Fault] = field(default_factory=list)
    invented: list[Fault] = field(default_factory=list)
    unplaced: list[Fault] = field(default_factory=list)


def compare(truth: Mapping[str, Any], found: Iterable[Mapping[str, Any]]) -> Comparison:
    """Every key's count and sum in the truth against those in the table."""
    expected = _expected(truth)
    told, others = _told(found, expected)
    result = Comparison(invented=others)
    for target, right in expected.items():
        read, name = told.get(target, Sums()), " ".join(target)
        if read.count < right.count:
            result.missing.append(Fault(name, int(right.count - read.count)))
        elif read.count > right.count:
            result.invented.append(Fault(name, int(read.count - right.count)))
        elif not _same(read.total, right.total):
            text = f"{name}: {read.total!r} instead of {right.total!r}"
            result.wrong.append(Fault(text, int(right.count)))
        elif not _same(read.times_step, right.times_step):
            result.unplaced.append(Fault(name, int(right.count)))
    return result


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=1e-6)


def _target(kind: str, key: str, measure: str) -> Target | None:
    word = WORDS.get(kind, {}).get(key, key)
    pattern = PATTERN_OF_WORD.get(word, PATTERNS[kind])
    return (pattern, word, measure) if word else None


def _expected(truth: Mapping[str, Any]) -> dict[Target, Sums]:
    """What the table must say, in seconds, bytes or as printed."""
    sums: dict[Target, Sums] = {}
    for kind, told in truth["kinds"].items():
        for key, value in told["keys"].items():
            target = _target(kind, key, value["measure"])
            if target is not None:
                sums.setdefault(target, Sums()).add(
                    value["count"], value["measure_sum"], value["measure_times_step_sum"]
                )
    return sums


def _told(
    found: Iterable[Mapping[str, Any]], expected: Mapping[Target, Sums]
) -> tuple[dict[Target, Sums], list[Fault]]:
    """What the table says of each target, and what its patterns say beside them."""
    told: dict[Target, Sums] = {}
    others: list[Fault] = []
    patterns = {pattern for pattern, _, _ in expected}
    for row in found:
        pattern, raw = row["pattern"], row["raw"]
        targets = [t for t in expected if t[0] == pattern and t[1] in {raw, ALL}]
        for target in targets:
            measure = target[2]
            told.setdefault(target, Sums()).add(
                row["rows"], row[measure], row[measure + "_times_step"]
            )
        if not targets and pattern in patterns and (pattern, raw) not in BESIDE:
            others.append(Fault(f"{pattern} {raw}", int(row["rows"])))
    return told, others
