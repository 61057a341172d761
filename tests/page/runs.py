"""Runs for the tests of charts and pages: hand-made, so that what must be seen is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsprof.recording import Unit, Writer
from dsprof.run import Run, from_events, load
from tests.recording.recorded import header, write_steps

FLAVOUR, OPTIMIZER = "zero", "zero-optimizer"
#: As Megatron prints them.
_ITERATION = (
    " iteration {n:8d}/     500 | consumed samples: {samples:12d} | elapsed time per iteration"
    " (ms): {ms:.1f} | learning rate: 1.000E-05 | global batch size:    16 | lm loss: 7.0E+00 |"
    " loss scale: 1.0 | grad norm: 2.0 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |\n"
)
_VALIDATION = (
    " validation loss at iteration {n} | lm loss value: 7.6E+00 | lm loss PPL: 2.1E+03 | \n"
)


def events_of(steps: int, ranks: int = 1, slow: dict[int, float] | None = None) -> pd.DataFrame:
    """A ZeRO-2 job: 1 s forward and backward, 0.5 s reduction (2 s in the `slow` steps).

    One line a step and rank, line numbers as a log of that shape would have them.
    """
    slow = slow or {}
    stage = {"kind": "config", "name": "zero_stage", "value": 2, "source": "made.log", "line": 1}
    rows: list[dict[str, Any]] = [stage]
    record, ended = 1, pd.Timestamp("2026-11-21")
    for step in range(1, steps + 1):
        ended += pd.Timedelta(seconds=1.1 + slow.get(step, 0.5))
        for rank in range(ranks):
            line = (step - 1) * ranks + rank + 1
            shared = {
                "step": step, "steps": 1, "rank": rank, "source": "made.log", "line": line,
                "record": record, "segment": 0, "engine": 0,
                "at": ended,
            }  # fmt: skip
            late = 0.1 * (rank == 3)  # it computes longer, so it waits less
            reduce_ = slow.get(step, 0.5) - late
            times = {"forward": 0.3, "backward": 0.7 + late + reduce_, "step": 0.1}
            inner = {"backward_inner": 0.7 + late, "backward_allreduce": reduce_}
            rows += [
                shared
                | {"kind": "phase", "name": name, "raw": name, "seconds": s, "timers": flavour}
                for flavour, named in (
                    (FLAVOUR, times | inner),
                    (OPTIMIZER, {"optimizer_step": 0.1}),
                )
                for name, s in named.items()
            ]
            if rank == 0:
                total = sum(times.values())
                rows += [
                    shared | {"kind": "metric", "name": "loss", "value": 4 / step},
                    shared | {"kind": "metric", "name": "lr", "value": 1e-3 / step},
                    shared | {"kind": "metric", "name": "step_seconds", "seconds": total},
                    shared | {"kind": "metric", "name": "samples_per_second", "value": 64 / total},
                ]
            record += 1
    return pd.DataFrame(rows)


def made(steps: int = 40, ranks: int = 1, **more: Any) -> Run:
    return from_events(events_of(steps, ranks, **more), meta={"sources": ["made.log"]})


def with_rows(run: Run, *rows: dict[str, Any]) -> Run:
    """The run with events more."""
    base = {"segment": 0, "engine": 0, "source": "made.log", "line": 1}
    extra = pd.DataFrame([base | row for row in rows])
    together = pd.concat([run.recorded.astype(object), extra], ignore_index=True)
    return from_events(together.drop(columns="record"), meta={"sources": ["made.log"]})


def validated(folder: Path, every: int = 100) -> Path:
    """A log of 500 steps; what validates now and then is timed with the step that follows."""
    path = folder / "validated.log"
    with path.open("w") as file:
        for n in range(1, 501):
            slow = 48_000 if n > 1 and (n - 1) % every == 0 else 0
            file.write(_ITERATION.format(n=n, samples=16 * n, ms=18_000 + n % 7 + slow))
            if n % every == 0:
                file.write(_VALIDATION.format(n=n))
    return path


def gpus(folder: Path, steps: int = 40) -> Run:
    """A recording of two ranks on a node of three GPUs; heat holds the second after step 30."""
    for rank in range(2):
        writer = Writer.create(folder, header(rank))
        writer.config("gpu", f"GPU-{rank}5d1a2b3c")
        writer.config("phases_on", "gpu")
        writer.config("gpu_memory_bytes", 141 << 30)
        write_steps(writer, 1, steps)
        for step in range(1, steps + 1):
            writer.memory(writer.name("max_allocated"), (60 + step / 4) * 2**30, step)
            writer.memory(writer.name("host_process"), (4 + step / 40) * 2**30, step)
        for step in range(1, steps + 1 if rank == 0 else 0):
            for gpu in range(3):
                _sample(writer, step, gpu)
        writer.close()
    return load(folder)


def _sample(writer: Writer, step: int, gpu: int) -> None:
    hot = gpu == 1 and step > 30
    uuid, at = writer.name(f"GPU-{gpu}5d1a2b3c"), step * 350_000_000
    counters = {
        "utilization": 90 + step % 3, "power": 600 + step % 7, "temperature": 50 + step // 4,
        "clock_sm": 1780 if hot else 1980, "throttled_thermal": float(hot), "throttled_power": 0,
    }  # fmt: skip
    for name, value in counters.items():
        writer.gpu(writer.name(name), value, step, 0, uuid, at)
    writer.gpu(writer.name("memory_used"), (70 + gpu) * 2**30, step, int(Unit.BYTES), uuid, at)


def huge(steps: int = 100_000, ranks: int = 64) -> Run:
    """A loaded run: every rank tells its phases in every step, 25.6 million rows.

    Its views are put in place directly: what is measured is the page, not the loading.
    """
    made_of = np.random.default_rng(7)
    parts = {
        "forward": 0.1,
        "backward": 0.2,
        "backward_allreduce": 0.15,
        "step": 0.05,
    }
    noise = made_of.gamma(40, 1 / 40, (steps, len(parts))).astype(np.float32)
    seconds = noise * np.array(list(parts.values()), dtype=np.float32)
    seconds[steps // 2 :, 2] *= 1.6  # a slowdown
    seconds[777, 2] = 9.0  # an outlier
    end = pd.Timestamp("2026-11-21") + pd.Timedelta(seconds=float(seconds.sum()))
    last = {"kind": "config", "name": "train_iters", "value": steps, "line": 3 * steps}
    small = with_rows(made(30), last | {"at": end})
    run = Run(small.recorded, meta={"sources": ["made.log"]})
    run.__dict__["steps"] = _huge_steps(small.steps, seconds, made_of)
    run.__dict__["phases"] = _huge_phases(list(parts), seconds, ranks)
    return run


def _huge_steps(
    like: pd.DataFrame, seconds: np.ndarray, made_of: np.random.Generator
) -> pd.DataFrame:
    count = len(seconds)
    steps = like.iloc[:0].reindex(range(count))
    number = np.arange(1, count + 1)
    told = {
        "segment": 0, "engine": 0, "step": number, "source": "made.log", "line": number * 3,
        "at": pd.Timestamp("2026-11-21") + pd.to_timedelta(seconds.sum(axis=1).cumsum(), unit="s"),
        "seconds": seconds.sum(axis=1), "compute": seconds[:, :2].sum(axis=1),
        "communication": seconds[:, 2], "optimizer": seconds[:, 3],
        "communication_share": seconds[:, 2] / seconds.sum(axis=1),
        "loss": 3 + made_of.normal(0, 0.1, count) + 5 / np.sqrt(number),
        "samples_per_second": 512 / seconds.sum(axis=1), "lr": 1e-4 * np.cos(number / count),
        "smoothed": False,
    }  # fmt: skip
    for name, values in told.items():
        steps[name] = values
    steps["bound"] = np.where(steps["communication_share"] > 0.35, "communication", "compute")
    return steps


def _huge_phases(names: list[str], seconds: np.ndarray, ranks: int) -> pd.DataFrame:
    steps, phases = seconds.shape
    slow = (1 + 0.3 * (np.arange(ranks) == min(17, ranks - 1))).astype(np.float32)
    each = (seconds[:, None, :] * slow[None, :, None]).ravel()
    words = pd.CategoricalDtype(names)
    class_of = {"backward_allreduce": "communication", "step": "optimizer"}
    class_ = pd.Categorical([class_of.get(name, "compute") for name in names])
    step = np.repeat(np.arange(1, steps + 1, dtype=np.int32), ranks * phases)
    name = np.tile(np.arange(phases, dtype=np.int8), steps * ranks)
    rank = np.tile(np.repeat(np.arange(ranks, dtype=np.int16), phases), steps)
    nothing, zeros = np.full(len(step), -1, np.int8), np.zeros(len(step), np.int8)
    return pd.DataFrame(
        {
            "segment": zeros,
            "engine": zeros,
            "step": step,
            "rank": rank,
            "name": pd.Categorical.from_codes(name, dtype=words),
            "raw": pd.Categorical.from_codes(name, dtype=words),
            "parent": pd.Categorical.from_codes(nothing, dtype=words),
            "class": pd.Categorical.from_codes(class_.codes[name], dtype=class_.dtype),
            "seconds": each,
            "self_seconds": each,
            "mixed": zeros.astype(bool),
            "source": pd.Categorical.from_codes(zeros, dtype=pd.CategoricalDtype(["made.log"])),
            "line": step * 3,
        },
        copy=False,
    )
