"""Plausible blocks of training steps, one function per dialect, as tables of lines.

A block has one column of lines for each thing that is printed in a step, in the order in which the
frameworks print them, and one row per step (or per window). "" is a line that was not printed.
NOW_COMMA in a line stands for the time of its step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.counts import GIB, Line, Numbers, Truth

#: Stand for the step's time: with a comma, with a point, and as RFC 3339.
NOW_COMMA, NOW_POINT, NOW_RFC = "\x01", "\x02", "\x03"


def logger(place: str) -> str:
    """The header of DeepSpeed's logger."""
    return f"[{NOW_COMMA}] [INFO] [{place}] "


@dataclass(frozen=True)
class Dialect:
    """How one framework, in one version, prints."""

    block: Callable[[Launch, Truth, Numbers], Block]
    version: str  # of DeepSpeed
    place: str  # of log_dist, as the logger's header says it: it tells the version
    timer: str = ""  # of the throughput line
    gas: int = 1  # gradient accumulation steps
    every: int = 10  # steps_per_print
    headed: bool = True  # timer lines carry the logger's header


@dataclass
class Launch:
    """One start of a training job and how far it has come."""

    dialect: Dialect
    rng: np.random.Generator
    step: int = 0  # optimizer steps done
    skipped: int = 0
    seconds: float = 0.0

    def jitter(self, mean: float, size: int | tuple[int, ...]) -> Numbers:
        """Positive numbers about `mean`, with the long tail that timers have."""
        return mean * (0.9 + self.rng.gamma(2.0, 0.05, size))


@dataclass
class Block:
    """Lines of some steps: `columns` in printing order, `seconds` each row took."""

    columns: list[list[str]]
    seconds: Numbers


_STEP = "step=%d, skipped=%d, lr=[%r], mom=[[%r, 0.95]]"
_STEP_COLUMNS = {"step": "", "skipped": "", "lr": "", "momentum": ""}
_THROUGHPUT = (
    "epoch=%d/micro_step=%d/global_step=%d, RunningAvgSamplesPerSec=%r, "
    "CurrSamplesPerSec=%r, MemAllocated=%rGB, MaxMemAllocated=%rGB"
)
_THROUGHPUT_COLUMNS = {
    "epoch": "",
    "micro_step": "",
    "global_step": "",
    "RunningAvgSamplesPerSec": "",
    "CurrSamplesPerSec": "",
    "MemAllocated": "GB",
    "MaxMemAllocated": "GB",
}
_MICRO = ("fwd_microstep", "bwd_microstep", "bwd_inner_microstep",
          "bwd_allreduce_microstep", "step_microstep")  # fmt: skip
_GLOBAL = ("fwd", "bwd", "bwd_inner", "bwd_allreduce", "step")
_ZERO = ("optimizer_allgather", "optimizer_gradients", "optimizer_step")
_DEEPER = ("train_batch", "batch_input", "forward", "pipe_send_output", "comms",
           "pipe_recv_grad", "backward", "reduce_tied_grads", "reduce_grads", "step",
           "_step_clipping", "_step_step", "_step_zero_grad", "_step_check_overflow")  # fmt: skip
_OVERFLOW = Line(
    "overflow",
    logger("loss_scaler.py:183:update_scale")
    + "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: %d, reducing to %d",
    {"attempted": "", "reduced": ""},
)
_COMM = Line(
    "comm_op",
    logger("logging.py:96:log_dist") + "[Rank 0] comm op: %s | time (ms): %.2f"
    " | msg size: %s | algbw (Gbps): %.2f | busbw (Gbps): %.2f",
    {"op": None, "time (ms)": "ms", "msg size": "B", "algbw": None, "busbw": None},
)
_COMM_SIZES = {"8.0 KB": 8 * 1024, "33.77 KB": 33.77 * 1024, "6.0 MB": 6 * 1024**2,
               "678.86 MB": 678.86 * 1024**2, "1.5 GB": 1.5 * GIB}  # fmt: skip
_COMM_OPS = {"all_reduce": 2, "reduce_scatter_tensor": 16, "all_gather_into_tensor": 16}
_MEMORY_BODY = (
    "MA %r GB         Max_MA %r GB         CA %r GB         Max_CA %d GB ",
    "CPU Virtual Memory:  used = %r GB, percent = %r%%",
)
_MEMORY_COLUMNS = {"MA": "GB", "Max_MA": "GB", "CA": "GB", "Max_CA": "GB",
                   "used": "GB", "percent": ""}  # fmt: skip
_PIPE = Line(
    "pipe_steps",
    "steps: %d loss: %.4f iter time (s): %.3f samples/sec: %.3f",
    {"steps": "", "loss": "", "iter time (s)": "s", "samples/sec": ""},
)
_PERCENT = Line(
    "pipe_pct",
    "%%comms: %r \n %%optimizer_step %r \n %%forward: %r \n %%backward: %r",
    {"comms": "", "optimizer_step": "", "forward": "", "backward": ""},
)
_MEGATRON = Line(
    "megatron_iter",
    " iteration %8d/%8d | consumed samples: %12d | consumed tokens: %12d"
    " | elapsed time per iteration (ms): %.1f | learning rate: %.3E | global batch size: %5d"
    " | lm loss: %.6E | loss scale: %.1f | grad norm: %.3f | actual seqlen: %5d"
    " | number of skipped iterations: %3d | number of nan iterations: %3d"
    " | samples per second: %.3f | tokens per gpu per second (tgs): %.3f | TFLOPs: %.2f |",
    {
        "iteration": "", "total": "", "consumed samples": "", "consumed tokens": "",
        "elapsed time per iteration (ms)": "ms", "learning rate": "", "global batch size": "",
        "lm loss": "", "loss scale": "", "grad norm": "", "actual seqlen": "",
        "number of skipped iterations": "", "number of nan iterations": "",
        "samples per second": "", "tokens per gpu per second (tgs)": "", "TFLOPs": "",
    },
)  # fmt: skip
_HF = Line(
    "hf_log",
    "{'loss': %r, 'grad_norm': %r, 'learning_rate': %r, 'epoch': %r}",
    {"loss": "", "grad_norm": "", "learning_rate": "", "epoch": ""},
)


def timers(kind: str, names: Sequence[str], head: str) -> Line:
    """A `time (ms) |` line of these timers."""
    text = f"{head}time (ms) | " + " | ".join(f"{name}: %.2f" for name in names)
    return Line(kind, text, dict.fromkeys(names, "ms"))


def scatter(texts: list[str], where: Numbers) -> list[str]:
    """The texts in the rows where `where` is true, "" elsewhere."""
    column = [""] * len(where)
    for row, text in zip(np.flatnonzero(where).tolist(), texts, strict=True):
        column[row] = text
    return column


def overflow_lines(launch: Launch, truth: Truth, steps: Numbers, happens: Numbers) -> list[str]:
    """OVERFLOW lines of the steps that `happens` marks; keeps the cumulative count."""
    scales = 2 ** launch.rng.integers(8, 17, len(steps))
    texts = _OVERFLOW.render(truth, steps[happens], scales[happens], scales[happens] // 2)
    return scatter(texts, happens)


def step_lines(launch: Launch, truth: Truth, steps: Numbers, overflow: Numbers) -> list[str]:
    """`step=N, skipped=M` of every so many steps."""
    skipped = launch.skipped + np.cumsum(overflow)
    launch.skipped = int(skipped[-1])
    printed = steps % launch.dialect.every == 0
    done = steps[printed]
    line = Line("ds_step", logger(launch.dialect.place) + "[Rank 0] " + _STEP, _STEP_COLUMNS)
    lr = np.round(1e-4 * (1.5 + np.cos(done / 1000)), 9)
    return scatter(line.render(truth, done, done, skipped[printed], lr, 0.9), printed)


def throughput_lines(launch: Launch, truth: Truth, steps: Numbers, seconds: Numbers) -> list[str]:
    """The 0.8.0+ throughput line, printed from the third step on."""
    printed = (steps % launch.dialect.every == 0) & (steps >= 3)
    done, current = steps[printed], 256 / seconds[printed]
    micro_steps = done * launch.dialect.gas
    memory = np.round(launch.jitter(31, len(done)), 2)
    line = Line("ds_throughput", logger(launch.dialect.timer) + _THROUGHPUT, _THROUGHPUT_COLUMNS)
    texts = line.render(
        truth, done, 0, micro_steps, done, current * 0.99, current, memory, np.round(memory + 8, 2)
    )
    return scatter(texts, printed)


def plain(launch: Launch, truth: Truth, steps: Numbers) -> Block:
    """The plain engine under ZeRO-1 with wall_clock_breakdown.

    Where its lines have headers it also runs the verbose comms logger, whose
    times later versions print wrongly.
    """
    count, gas, headed = len(steps), launch.dialect.gas, launch.dialect.headed
    head = (logger(launch.dialect.place) if headed else "") + "[Rank 0] "
    forward, inner, reduce, update = (
        launch.jitter(mean, (count, gas)) for mean in (90, 180, 40, 20)
    )
    micro = np.round([forward, inner + reduce + 0.4, inner, reduce, update], 2)
    whole = np.round(micro.sum(axis=2), 2)
    seconds = (whole[0] + whole[1] + whole[4]) / 1e3
    overflow = launch.rng.random(count) < 0.004
    shares = [whole[4][~overflow] * part for part in (0.5, 0.2, 0.25)]
    zero = timers("time_zero_opt", _ZERO, head).render(truth, steps[~overflow], *shares)
    by_micro = timers("time_micro", _MICRO, head).render(
        truth, steps.repeat(gas), *micro.reshape(5, -1)
    )
    columns = [
        *(comm_lines(launch, truth, steps) if headed else []),
        memory_lines(launch, truth, steps),
        overflow_lines(launch, truth, steps, overflow),
        scatter(zero, ~overflow),
        step_lines(launch, truth, steps, overflow),
        throughput_lines(launch, truth, steps, seconds),
        *(by_micro[index::gas] for index in range(gas)),
        timers("time_global", _GLOBAL, head).render(truth, steps, *whole),
    ]
    return Block(columns, seconds)


def comm_lines(launch: Launch, truth: Truth, steps: Numbers) -> list[list[str]]:
    """Two verbose lines of the communication logger in half of the steps."""
    columns = []
    for name, factor in list(_COMM_OPS.items())[:2]:
        printed = launch.rng.random(len(steps)) < 0.5
        count = int(printed.sum())
        texts = np.array(list(_COMM_SIZES))[launch.rng.integers(0, len(_COMM_SIZES), count)]
        size = np.array([_COMM_SIZES[text] for text in texts.tolist()])
        time = np.round(launch.jitter(9, count), 2)
        algbw = factor * size / time * 8 / 1e6
        lines = _COMM.render(
            truth, steps[printed], np.full(count, name), time, texts, algbw, algbw * 15 / 16,
            known={"msg size": size},
        )  # fmt: skip
        columns.append(scatter(lines, printed))
    return columns


def memory_lines(launch: Launch, truth: Truth, steps: Numbers) -> list[str]:
    """see_memory_usage before every 25th step: message, device and host, three lines."""
    printed = steps % 25 == 0
    head = logger("utils.py:791:see_memory_usage") if launch.dialect.headed else ""
    body = "\n".join(head + text for text in ("Engine before step", *_MEMORY_BODY))
    used = np.round(launch.jitter(31, int(printed.sum())), 2)
    peaks = np.round(used + 2, 2), np.round(used + 4, 2), np.rint(used + 6).astype(int)
    line = Line("see_memory", body, _MEMORY_COLUMNS)
    return scatter(line.render(truth, steps[printed], used, *peaks, 402.5, 21.3), printed)


def pipeline(launch: Launch, truth: Truth, steps: Numbers) -> Block:
    """DeeperSpeed's pipeline engine (gpt-neox): a window of 10 steps a row."""
    windows = steps * 10
    count = len(windows)
    total = launch.jitter(5.7, count) * 1e4  # ms of a window
    shares = [0, 2e-4, 0.06, 1.5e-3, 0.76, 0.7, 0.167, 4e-6, 0.033, 0.028, 2e-6, 0.0278, 6e-6, 8e-6]
    parts = dict(
        zip(_DEEPER, (total * launch.jitter(share, count) for share in shares), strict=True)
    )
    percents = [100 * parts[name] / total for name in ("comms", "step", "forward", "backward")]
    timer = timers(
        "time_deeper", _DEEPER,
        logger(launch.dialect.place) + "[Rank 0] rank=0 "
    )  # fmt: skip
    loss, seconds = launch.jitter(3.0, count), total / 1e3
    none = np.zeros(count, dtype=int)
    columns = [
        step_lines(launch, truth, windows, none),
        _PIPE.render(truth, windows, windows, loss, seconds / 10, 10 * 256 / seconds),
        _PERCENT.render(truth, windows, *percents),
        timer.render(truth, windows, *parts.values()),
    ]
    return Block(columns, seconds)


def megatron(launch: Launch, truth: Truth, steps: Numbers) -> Block:
    """Megatron-DeepSpeed: one line an iteration, DeepSpeed's own every tenth."""
    count = len(steps)
    seconds = launch.jitter(2.4, count)
    overflow = launch.rng.random(count) < 0.004
    rate = 512 / seconds
    columns = [
        overflow_lines(launch, truth, steps, overflow),
        step_lines(launch, truth, steps, overflow),
        _MEGATRON.render(
            truth, steps, steps, 9_000_000, steps * 512, steps * 512 * 2048, seconds * 1e3,
            1e-4 * (1.5 + np.cos(steps / 1000)), 512, launch.jitter(2.2, count), 65536.0,
            launch.jitter(0.8, count), 2048, overflow.astype(int), 0, rate, rate * 32, rate * 0.6,
        ),
    ]  # fmt: skip
    return Block(columns, seconds)


def trainer(launch: Launch, truth: Truth, steps: Numbers) -> Block:
    """The Hugging Face Trainer: a dict glued behind the progress bar of its step."""
    count = len(steps)
    seconds = launch.jitter(1.9, count)
    loss, norm = np.round(launch.jitter(1.4, count), 4), launch.jitter(0.6, count)
    rate = np.round(1e-5 * (1.5 + np.cos(steps / 1000)), 12)
    dicts = _HF.render(truth, steps, loss, norm, rate, np.round(steps / 9000, 2))
    total = 4_000_000
    bars = [
        f"\r{100 * step // total:3d}%|▎         | {step}/{total} "
        f"[{step // 1800}:{step // 30 % 60:02d}:{step % 30 * 2:02d}<99:59:59,  {second:.2f}s/it]"
        for step, second in zip(steps.tolist(), seconds.tolist(), strict=True)
    ]
    wipe = "\r" + " " * 60 + "\r"
    glued = launch.rng.random(count) < 0.5
    texts = [
        bar + ("" if hard else wipe) + text
        for bar, hard, text in zip(bars, glued.tolist(), dicts, strict=True)
    ]
    return Block([texts], seconds)


DIALECTS = {
    "plain-0.14": Dialect(plain, "0.14.2", "logging.py:96:log_dist", "timer.py:258:stop", gas=2),
    "pipeline": Dialect(pipeline, "0.3.15", "logging.py:60:log_dist"),
    "megatron": Dialect(megatron, "0.9.5", "logging.py:96:log_dist"),
    "huggingface": Dialect(trainer, "0.14.2", "logging.py:96:log_dist"),
    "plain-0.18": Dialect(
        plain, "0.18.1", "logging.py:123:log_dist", "timer.py:265:stop", every=1, headed=False
    ),
}
