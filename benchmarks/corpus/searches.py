"""Records counted by a narrow search of the bytes, independently of the reader."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from benchmarks.corpus.reading import Check, Reading

COLOURS = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")

#: What to search for → the patterns that read it. Only records that are whole.
SEARCHES: Mapping[bytes, tuple[str, ...]] = {
    rb"step=\d+, skipped=\d+, lr=": ("deepspeed.step",),
    rb"(?:RunningAvg|\d/\d+, )SamplesPerSec=[\d.]+": (
        "deepspeed.throughput",
        "deepspeed.throughput_07",
        "deepspeed.throughput_01",
    ),
    rb"time \(ms\) \| [\w/ -]+: -?[\d.]+": ("deepspeed.timers", "deepspeed.moe_timers"),
    rb"(?:OVERFLOW!|loss scale overflow!|Overflow detected\.)": (
        "deepspeed.overflow",
        "deepspeed.overflow_hysteresis",
        "deepspeed.overflow_unscaled",
    ),
    rb"(?<!No )Grad overflow on iteration:? \d+": ("deepspeed.grad_overflow",),
    rb"Invalidate trace cache": ("deepspeed.trace_cache",),
    rb"is about to be saved!": ("deepspeed.checkpoint_begin",),
    rb"Saving model checkpoint: ": ("deepspeed.checkpoint_model",),
    rb"steps: \d+ loss: [\d.naif]+ .{0,200}iter time \(s\): [\d.]+ samples/sec: [\d.]+": (
        "deepspeed_pipeline.steps",
        "deepspeed_pipeline.steps_losses",
    ),
    rb"comm op: \w+.{0,60}\| time \(ms\): [\d.]+ \| msg size: [\d.]+": ("deepspeed_comms.op",),
    rb"MA [\d.]+ GB +Max_MA": ("deepspeed_memory.see_memory",),
    rb"CPU Virtual Memory:\s+used = [\d.]+ GB": ("deepspeed_memory.host_memory",),
    rb" iteration[= ] *\d+/ *\d+ \|": (
        "megatron.iteration",
        "megatron.iteration_equals",
        "gpt_neox.iteration",
    ),
    rb"\{'loss': '?[-\d.ni]": ("huggingface.train",),
    rb"\{'train_runtime'": ("huggingface.summary",),
    rb"\|E2E latency=": ("deepspeed_chat.hybrid",),
    rb"(?i:average reward score): ": ("deepspeed_chat.reward",),
    rb"Killing subprocess \d+": ("launcher.killing",),
    rb"exits with return code = -?\d+": ("launcher.return_code",),
    rb"Watchdog caught collective operation timeout": ("failures.watchdog",),
}


def searched(text: bytes, reading: Reading) -> Iterator[Check]:
    """As many records of each kind as a search of the plain text finds."""
    text = COLOURS.sub(b"", text)
    for search, patterns in SEARCHES.items():
        expected, found = len(re.findall(search, text)), len(reading.of(*patterns))
        if expected or found:
            name = next((p for p in patterns if reading.of(p)), patterns[0])
            yield Check(name, "n", expected, found)
