"""What a log contains besides its records: noise, decoys, launchers' prefixes, broken bytes."""

from __future__ import annotations

from typing import Final

import numpy as np

from benchmarks.counts import Numbers
from benchmarks.dialects import NOW_POINT, NOW_RFC, logger

BROKEN = "\udcff\udce2\udc96"  # bytes that are no UTF-8, as surrogateescape writes them
_BAR = "{p:3d}%|###{n:>12}| {n}/90000 [{m}:{s:02d}<12:00:00,  {f:.2f}it/s]"

#: Lines without a record; {n} {m} {s} {p} {f} {w} are numbers and a word. The number is a weight.
NOISE = (
    (8, "[{m}/{n}] /usr/bin/nvcc -gencode=arch=compute_80,code=sm_80 -c csrc/{w}_{m}.cu -o {w}.o"),
    (4, "In file included from /opt/conda/include/torch/extension.h:{m}, from csrc/{w}.cpp:{n}:"),
    (4, "  warning: #{n}-D: variable '{w}' was declared but never referenced"),
    (6, "/opt/conda/lib/python3.11/site-packages/torch/{w}.py:{n}: UserWarning: {w} is deprecated"),
    (4, logger("utils.py:{n}:{w}") + "{w} bucket {n} of {m} is ready, elements={n}{m}"),
    (4, logger("config.py:{n}:print") + "  {w}_{w} .................. {n}"),
    (8, "{w}: batch {n} tokenised in {f:.3f} s, {m} documents, longest {n} tokens"),
    (8, "{w} | worker {m} | queue {p} | cache hit {f:.3f} | path /data/{w}/shard-{n:06d}.bin"),
    (6, '{{"event": "{w}", "rank": {m}, "bytes": {n}, "latency": {f:.4f}, "path": "/mnt/{w}"}}'),
    (4, "node-{m}:{n}:{n} [{s}] NCCL INFO {w} trees [0] {m}/-1/-1->{n}->{s} [1] {p}/-1/-1->{n}"),
    (3, "node-{m}:{n}:{n} [{s}] NCCL INFO ncclCommSplit comm 0x{n:012x} color {m} key {s}"),
    (2, '  File "/workspace/{w}/{w}.py", line {n}, in {w}'),
    (2, "    return self.{w}(*args, **kwargs)  # {n}"),
    (2, "  [rank{m}] {w} handler returned None ({n})"),
    (3, "\x1b[93m [WARNING] \x1b[0m {w}: please set CUTLASS_PATH, tried {n} folders"),
    (3, "\x1b[32m{w}\x1b[0m epoch {m} shard {n} \x1b[1mready\x1b[0m"),
    (2, "{w} " + BROKEN + " {n}"),
    (2, ""),
    (1, "\rMap: " + _BAR + "\rMap: " + _BAR + "\rMap: " + _BAR),
    (1, "\r{w} a: {m} | b: {f:.2f}: " + _BAR),
    (1, "{w} " * 60 + "{n}"),
)

#: Lines that hold a needle and no record.
DECOYS = (
    "we run for steps: {n}, then decay to {f:.2f}",
    "time (ms) is printed when wall_clock_breakdown is on ({n})",
    "time (ms)",
    "note: step= counts optimizer steps, skipped= is cumulative ({w})",
    "the line RunningAvgSamplesPerSec= hides drift, see note {n}",
    "%comms: and %forward: are shares of {w}",
    "one iteration of {w} takes long | consumed samples: unknown",
    "comm op: see the table of {w}",
    "MA crossover of {w} at {n} GB",
    "OVERFLOW! handling is {w}",
    "{{'loss': 'mse', 'name': '{w}'}}",
    "samples/sec: see the dashboard of {w}",
    "elapsed time per iteration (ms) goes down with {w}",
)

#: Heads of records whose rest another process's output cut off: no value can be read.
TORN = (
    logger("logging.py:96:log_dist") + "[Rank 0] step=12, ski",
    "steps: 10 loss: 2.1",
    logger("timer.py:258:stop") + "epoch=0/micro_step=3/glo",
    logger("logging.py:96:log_dist") + "[Rank 0] time (ms) | fwd_mic",
    logger("logging.py:96:log_dist") + "[Rank 0] comm op: all_re",
    " iteration       10/ 90",
)

_WORDS = ("adam", "attention", "bucket", "cache", "dataset", "fused", "gelu", "kernel", "loader",
          "norm", "partition", "reducer", "rotary", "shard", "softmax", "tokenizer")  # fmt: skip

#: A launcher's prefix; {h} is the host or task that prints.
WRAPPERS = {
    "none": "",
    "platform": NOW_POINT + " [INFO] 10.42.3.{h}: ",
    "pdsh": "worker-{h}: ",
    "srun": "{h:2d}: ",
    "torchrun": "[default{h}]:",
    "cri": NOW_RFC + " stdout F ",
    "kubectl": NOW_RFC + " ",
}


_DECOYS: Final = 0.01  # share of the lines that are none of ours and look like it


def pool(rng: np.random.Generator, size: int) -> list[str]:
    """Noise lines to draw from, a share of them decoys."""
    weights = np.array([weight for weight, _ in NOISE], dtype=float)
    chances = np.append(
        weights / weights.sum() * (1 - _DECOYS), np.full(len(DECOYS), _DECOYS / len(DECOYS))
    )
    templates = [template for _, template in NOISE] + list(DECOYS)
    return [
        templates[index].format(
            n=number,
            m=number % 61,
            s=number % 60,
            p=number % 100,
            f=number / 977,
            w=_WORDS[number % len(_WORDS)],
        )
        for index, number in zip(
            rng.choice(len(templates), size, p=chances).tolist(),
            rng.integers(1, 90_000, size).tolist(),
            strict=True,
        )
    ]


def bar(number: int) -> str:
    """The progress bar behind which a glued record stands."""
    return "\rMap: " + _BAR.format(p=number % 100, n=number, m=3, s=number % 60, f=1.25)


def prefixes(wrapper: str, hosts: Numbers) -> list[str]:
    """One prefix a line, as host 0 (or whichever) prints under that launcher."""
    names = list(WRAPPERS) if wrapper == "mixed" else [wrapper]
    return [WRAPPERS[names[i % len(names)]].format(h=host) for i, host in enumerate(hosts.tolist())]
