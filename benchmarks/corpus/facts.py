"""Facts that a truth file states once: counts of lines, the job itself, its failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from benchmarks.corpus.kinds import KINDS, counted, stepped, timers
from benchmarks.corpus.reading import Check, Reading
from dsprof import units

Fact = Callable[[str, Any, Reading], Iterator[Check]]

#: Truth key → patterns whose records it counts.
COUNTS = {
    "see_memory_usage": ("deepspeed_memory.see_memory",),
    "killing_subprocess_lines": ("launcher.killing",),
    "memory_mb_lines": ("megatron.memory", "gpt_neox.memory"),
    "validation_lines": ("megatron.validation",),
    "epochs": ("deepspeed_chat.epoch",),
    "invalidate_trace_cache": ("deepspeed.trace_cache",),
    "nccl_cuda_oom_warn_lines": ("nccl.warn_memory",),
    "timer_lines_total": ("deepspeed.timers", "deepspeed.moe_timers"),
}
#: What the truth calls a framework → what dsprof calls it.
FRAMEWORKS = {
    "ds-chat": "deepspeed-chat",
    "megatron-deepspeed": "megatron",
    "hf": "huggingface",
    "deepspeed": "deepspeed",
    "gpt-neox": "gpt-neox",
}
#: Keys that are no fact of reading: about the file, or lines of the application itself.
ABOUT = {
    "file", "units", "note", "oom_note", "truncated_tail", "ansi_lines",
    "spliced_traceback_lines", "app_step", "app_step_times_ms",
}  # fmt: skip


def checks(truth: Mapping[str, Any], reading: Reading) -> Iterator[Check]:
    """Every key of a truth file, held against what was read."""
    for key, value in truth.items():
        if key in KINDS:
            yield from counted(key, value, reading)
            if isinstance(value, dict) and key == _speaks(truth):
                yield from stepped(key, value, reading)
        elif key in COUNTS:
            yield Check(key, "n", value, len(reading.of(*COUNTS[key])))
        elif key in FACTS:
            yield from FACTS[key](key, value, reading)
        elif key not in ABOUT:
            yield Check(key, "is held against nothing", value, None)


def _speaks(truth: Mapping[str, Any]) -> str | None:
    """The kind of line that `Run.steps` follows where several tell the same step."""
    order = ("iterations", "pipe_lines", "step_lines")
    return next((key for key in order if key in truth and truth[key].get("n")), None)


def framework(key: str, value: str, reading: Reading) -> Iterator[Check]:
    name = value.partition(" (")[0]
    yield Check(key, "", FRAMEWORKS[name], reading.run.meta.get("framework"))


def version(key: str, value: str, reading: Reading) -> Iterator[Check]:
    """The truth may add what it knows from elsewhere, in brackets."""
    yield Check(
        key, "", value.partition(" (")[0], reading.run.meta.get("versions", {}).get("deepspeed")
    )


def world_size(key: str, value: int, reading: Reading) -> Iterator[Check]:
    """The truth infers it; a reader may leave it unknown, but must not say otherwise."""
    found = reading.run.meta.get("world_size")
    yield Check(key, "or unknown", value, value if found is None else found)


def prefixes(key: str, value: list[str], reading: Reading) -> Iterator[Check]:
    """What launchers call the hosts, which views may call by their own names."""
    told = reading.run.recorded["host"].dropna().unique()
    yield Check(key, "hosts", sorted(value), sorted(map(str, told)))


def launches(key: str, value: int, reading: Reading) -> Iterator[Check]:
    yield Check(key, "segments", value, int(reading.run.recorded["segment"].nunique()))


def problem(*kinds: str, pattern: str = "") -> Fact:
    """Whether there is such a problem at all."""

    def fact(key: str, value: Any, reading: Reading) -> Iterator[Check]:
        rows = reading.run.problems
        rows = rows[rows["kind"].isin(kinds) & rows["text"].str.contains(pattern).fillna(False)]
        told = bool(value) if isinstance(value, bool) else value
        yield Check(key, "", told, bool(len(rows)) if isinstance(value, bool) else len(rows))

    return fact


def failed(key: str, value: bool, reading: Reading) -> Iterator[Check]:
    yield Check(key, "root cause", value, bool(reading.run.problems["root_cause"].any()))


def torch_oom(key: str, value: bool, reading: Reading) -> Iterator[Check]:
    found = reading.of("failures.oom", "failures.oom_other")
    yield Check(key, "", value, bool(found))


def no_failed_exit(key: str, _: int, reading: Reading) -> Iterator[Check]:
    """`exits successfully` is no event of its own: no process may be told to have failed."""
    yield Check(key, "failed exits", 0, int(reading.run.problems["kind"].eq("exit").sum()))


def return_codes(key: str, value: list[int], reading: Reading) -> Iterator[Check]:
    yield Check(key, "", value, [r["exit"] for r in reading.of("launcher.return_code")])


def oom_ranks(key: str, value: list[int], reading: Reading) -> Iterator[Check]:
    rows = reading.run.problems
    found = sorted(map(int, rows.loc[rows["kind"] == "oom", "rank"].dropna().unique()))
    yield Check(key, "", value, found)


def error(key: str, value: str, reading: Reading) -> Iterator[Check]:
    rows = reading.run.problems
    causes = rows.loc[rows["root_cause"], "text"]
    yield Check(key, "root cause of each launch", {value}, set(causes))


def setup_timers(key: str, value: int, reading: Reading) -> Iterator[Check]:
    found = [r for r in reading.of("deepspeed.timers") if r.timers == "megatron-setup"]
    yield Check(key, "n", value, len(found))


def last_validation(key: str, value: float, reading: Reading) -> Iterator[Check]:
    found = reading.of("megatron.validation")
    yield Check(key, "eval_loss", value, found[-1]["eval_loss"] if found else None)


def perplexity(key: str, value: Mapping[str, Any], reading: Reading) -> Iterator[Check]:
    found = [record["eval_perplexity"] for record in reading.of("deepspeed_chat.perplexity")]
    yield Check(key, "n", value["n"], len(found))
    yield Check(key, "first and last", [value["first"], value["last"]], [found[0], found[-1]])


def final(measure: str) -> Fact:
    """A number of the Trainer's last line."""

    def fact(key: str, value: float, reading: Reading) -> Iterator[Check]:
        found = reading.of("huggingface.summary")
        yield Check(key, measure, value, found[-1][measure] if found else None)

    return fact


def bar(measure: str) -> Fact:
    def fact(key: str, value: int, reading: Reading) -> Iterator[Check]:
        found = reading.of("huggingface.bar_slow", "huggingface.bar_fast")
        yield Check(key, measure, value, found[-1][measure] if found else None)

    return fact


def percent(key: str, value: Mapping[str, float], reading: Reading) -> Iterator[Check]:
    words = {"comms": "communication", "optimizer_step": "optimizer"}
    names = [name for name in reading.patterns if name.startswith("gpt_neox.percent")]
    found = {n: v for record in reading.of(*names) for n, v in record.values.items()}
    for word, told in value.items():
        yield Check(key, word, told, found.get(f"{words.get(word, word)}_percent"))


def ppo(key: str, value: Mapping[str, Any], reading: Reading) -> Iterator[Check]:
    turns = reading.of("deepspeed_chat.ppo")
    infinite = [turn.step for turn in turns if turn["loss"] == float("inf")]
    yield Check(key, "n", value["n"], len(turns))
    yield Check(key, "steps", [value["first_step"], value["last_step"]],
                [turns[0].step, turns[-1].step] if turns else None)  # fmt: skip
    yield Check(key, "infinite losses", value["inf_loss_steps"], infinite)


def reward(key: str, value: list[float], reading: Reading) -> Iterator[Check]:
    yield Check(key, "", value, [r["reward"] for r in reading.of("deepspeed_chat.reward")])


def tables(key: str, value: int, reading: Reading) -> Iterator[Check]:
    """Two tables say the same operation and size twice."""
    rows = reading.of("deepspeed_comms.summary")
    yield Check(key, "n", value, 1 + sum(_again(rows)))


def _again(rows: list[Any]) -> Iterator[bool]:
    """Whether a new table begins: its first operation comes again after another one."""
    names = [row.names[0] for row in rows]
    for before, name in pairwise(names):
        yield name == names[0] != before


def overflow(key: str, value: Mapping[str, Any], reading: Reading) -> Iterator[Check]:
    lines = reading.of("deepspeed.overflow", "deepspeed.overflow_hysteresis")
    patient = reading.of("deepspeed.overflow_hysteresis")
    scales = [_scales(record.texts.get("overflow", "")) for record in lines]
    facts = {
        "lines": len(lines),
        "events": len({r.texts["overflow"] for r in reading.of("deepspeed.grad_overflow")}),
        "of_which_hysteresis_only": len(patient),
        "hysteresis_only": len(patient),
        "grad_overflow_lines": len(reading.of("deepspeed.grad_overflow")),
        "reducing_lines": len(reading.of("deepspeed.loss_scale_change")),
        "final_skipped_counter": _last_skipped(reading),
        "scales": scales,
        "first_scale": scales[0][0] if scales else None,
        "last_reduced_to": scales[-1][-1] if scales else None,
    }
    for name in value.keys() - {"note"}:
        yield Check(key, name, value[name], facts.get(name))


def _scales(text: str) -> list[float]:
    """`Attempted loss scale: 64, reducing to 32` → 64, 32."""
    numbers = [units.number(word.strip(",.")) for word in text.split()]
    return [number for number in numbers if number is not None]


def _last_skipped(reading: Reading) -> int | None:
    skipped = reading.run.steps["skipped"].dropna()
    return int(skipped.iloc[-1]) if len(skipped) else None


def watchdog(key: str, value: Mapping[str, Any], reading: Reading) -> Iterator[Check]:
    rows = reading.of("failures.watchdog")
    texts = {row.rank: row.texts.get("watchdog", "") for row in rows}
    yield Check(key, "ranks", value["ranks"], sorted({r.rank for r in rows if r.rank is not None}))
    yield Check(
        key, "timeout", True, f"Timeout(ms)={value['timeout_ms']}" in "".join(texts.values())
    )
    if "seq" in value:
        yield Check(key, "seq", value["seq"], rows[0].count if rows else None)
        yield Check(key, "op", True, f"OpType={value['op']}" in "".join(texts.values()))
        yield Check(key, "ran", value["ran_ms"] / 1e3, rows[0]["watchdog"] if rows else None)
    for rank, told in value.get("ops", {}).items():
        op, _, number = told.partition(" seq ")
        found = [(r.count, f"OpType={op}," in texts[r.rank]) for r in rows if str(r.rank) == rank]
        yield Check(key, f"rank {rank}: {told}", [(int(number), True)], found[:1])


FACTS: Mapping[str, Fact] = {
    "framework": framework,
    "ds_version": version,
    "world_size_inferred": world_size,
    "prefixes": prefixes,
    "runs_in_file": launches,
    "iteration_timers": timers,
    "setup_timer_lines": setup_timers,
    "overflow": overflow,
    "oom": problem("oom"),
    "torch_oom": torch_oom,
    "oom_ranks": oom_ranks,
    "failed": failed,
    "error": error,
    "cancelled_time_limit": problem("cancelled", pattern="TIME LIMIT"),
    "nccl_timeouts": problem("watchdog"),
    "return_codes": return_codes,
    "exits_successfully": no_failed_exit,
    "eval_ppl": perplexity,
    "last_validation_loss": last_validation,
    "train_runtime_s": final("train_runtime"),
    "train_samples_per_second": final("train_samples_per_second"),
    "train_steps_per_second": final("train_steps_per_second"),
    "last_bar_step": bar("bar_position"),
    "total_steps": bar("bar_total"),
    "percent": percent,
    "ppo_lines": ppo,
    "reward": reward,
    "summary_tables": tables,
    "watchdog": watchdog,
}
