"""Two runs compared: right answers, honest intervals, and no answer where there is none."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from dsprof.analysis.breakdown import regular_steps
from dsprof.analysis.ratio import Answer
from dsprof.compare import Comparison, compare, differing
from dsprof.events import Class
from dsprof.recording import Writer
from dsprof.run import Run, from_events, load
from dsprof.text.difference import difference
from dsprof.text.overview import overview
from dsprof.text.parts import BLENT, UNTIMED
from tests.analysis.test_ratio import Floats, series
from tests.conftest import ROOT, SAMPLES, Dsprof
from tests.findings.unknown.test_between_steps import is_twentieth, written
from tests.findings.unknown.test_between_steps import job as between_steps
from tests.loaded import run_of_text, sample
from tests.recording.recorded import MS, header, record
from tests.run.run_rows import events, metric, timers
from tests.run.steps.test_seldom import at_tenths, printed


def run_of(seconds: Floats, **config: float) -> Run:
    rows: list[dict[str, Any]] = [
        {"kind": "config", "name": name, "value": value} for name, value in config.items()
    ]
    rows += [
        {"kind": "metric", "name": "step_seconds", "seconds": s, "step": i + 1, "steps": 1}
        for i, s in enumerate(seconds)
    ]
    return from_events(pd.DataFrame(rows))


@pytest.mark.parametrize(("factor", "answer"), [(1.1, "regression"), (0.9, "improvement")])
def test_a_tenth_more_or_less_is_seen(factor: float, answer: str) -> None:
    chance = np.random.default_rng(5)
    found = compare(run_of(series(200, 1, 0.3, chance)), run_of(series(200, factor, 0.3, chance)))
    assert found.answer == answer
    assert found.low is not None
    assert found.high is not None
    assert found.low < factor < found.high


def test_a_run_is_no_slower_than_itself() -> None:
    run = run_of(series(2_000, 1, 0, np.random.default_rng(1)))
    found = compare(run, run)
    assert (found.answer, found.ratio) == ("none", 1.0)


def test_noise_too_large_to_tell_says_how_many_rows_would() -> None:
    chance = np.random.default_rng(2)
    found = compare(run_of(series(30, 1, 0.5, chance)), run_of(series(30, 1.005, 0.5, chance)))
    assert found.answer == "cannot tell"
    assert found.needed is not None
    assert found.needed > 30


def test_settings_are_shown_side_by_side_unless_they_are_too_long() -> None:
    chance = np.random.default_rng(2)
    found = compare(run_of(series(30, 1, 0.5, chance)), run_of(series(30, 1.0, 0.5, chance)))
    far = replace(found, settings={"zero_stage": (1, 2), "zero_config": ("x" * 30, "y" * 30)})
    console = Console(file=StringIO(), width=80)
    console.print(difference(far))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"zero_stage +1 → 2", text)
    assert "In --json also: zero_config" in text
    assert "xxx" not in text


def test_settings_too_long_for_the_terminal_are_named_alone() -> None:
    found = compare(run_of(np.ones(9)), run_of(np.ones(9)))
    far = replace(found, settings={"zero_config": ("x" * 30, "y" * 30)})
    console = Console(file=StringIO(), width=80)
    console.print(difference(far))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Configured differently\nIn --json: zero_config" in text


def test_every_key_of_the_document_is_in_its_page() -> None:
    told = compare(run_of(np.ones(9)), run_of(np.ones(9))).document()
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    said = page.partition("## The document of a comparison")[2]
    assert [key for key in (*told, *told["first"]) if f"`{key}`" not in said] == []


def test_a_handful_of_rows_is_no_ground_for_an_answer() -> None:
    found = compare(run_of(np.ones(3)), run_of(np.full(3, 2.0)))
    assert (found.answer, found.why) == ("cannot tell", "3 step times, 8 needed of each run")


def test_few_rows_answer_where_all_of_one_run_are_far_from_all_of_the_other() -> None:
    quick = np.array([1.0, 1.1, 1.2, 1.0])
    slow = np.array([90.0, 95.0, 80.0, 92.0])
    found = compare(run_of(quick), run_of(slow))
    assert found.answer == "regression"
    assert [found.low, found.high] == pytest.approx([80 / 1.2, 95])
    assert found.why.endswith("takes 66.7 times as long as the longest of the first")
    assert compare(run_of(slow), run_of(quick)).answer == "improvement"


@pytest.mark.parametrize("slow", [[1.5, 1.5, 1.5], [1.5, 1.5, 1.5, 1.3], [1.5, 1.5, 1.5, 1.1]])
def test_few_rows_that_meet_or_are_near_tell_nothing(slow: list[float]) -> None:
    found = compare(run_of(np.array([1.0, 1.0, 1.0, 1.2])), run_of(np.array(slow)))
    assert (found.answer, found.needed, found.ratio) == ("cannot tell", 8, None)


def test_a_change_of_ten_times_is_told_as_a_factor() -> None:
    found = compare(run_of(np.ones(9)), run_of(np.full(9, 90.0)))
    console = Console(file=StringIO(), width=80)
    console.print(difference(found))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Slower: ×90 time per step (×90 to ×90)" in text


def test_seconds_of_different_things_are_not_compared() -> None:
    logged = run_of(np.ones(20))
    clock = from_events(
        pd.DataFrame(
            {
                "kind": "metric",
                "name": "loss",
                "value": 1.0,
                "step": range(1, 21),
                "at": pd.date_range("2026-01-01", periods=20, freq="2s"),
            }
        )
    )
    found = compare(logged, clock)
    assert found.answer == "cannot tell"
    assert "logged times in the first run and from time stamps in the second" in found.why


def test_other_batches_compare_by_the_sample() -> None:
    chance = np.random.default_rng(4)
    small = run_of(series(900, 1, 0, chance), train_batch_size=100)
    large = run_of(series(900, 2, 0, chance), train_batch_size=200)
    found = compare(small, large)
    assert (found.answer, found.per) == ("none", "sample")
    assert "judged" not in shown(found)
    assert found.first.seconds == pytest.approx(0.01, rel=0.02)


@pytest.mark.parametrize(
    ("first", "second", "assumed"),
    [
        ({}, {}, "the batch is the same in both: neither run tells it"),
        ({"world_size": 8}, {"world_size": 8}, "the batch is the same in both: neither run tells"),
        ({"train_batch_size": 64}, {}, "the batch is the same in both: the second run does not"),
        ({}, {"train_batch_size": 64}, "the batch is the same in both: the first run does not"),
        ({"train_batch_size": 64}, {"train_batch_size": 64}, ""),
    ],
)
def test_what_is_said_of_steps_holds_for_the_same_batch_and_says_so_where_none_is_told(
    first: dict[str, float], second: dict[str, float], assumed: str
) -> None:
    chance = np.random.default_rng(5)
    quick, slow = series(200, 1, 0.3, chance), series(200, 1.1, 0.3, chance)
    found = compare(run_of(quick, **first), run_of(slow, **second))
    assert found.answer == "regression"
    assert found.assumed.startswith(assumed)
    assert bool(found.assumed) == bool(assumed)
    assert any("That holds if the batch" in label for label in shown(found)) == bool(assumed)
    alike = run_of(quick, **first)
    assert compare(alike, alike).assumed == ""


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ({"world_size": 8}, {"world_size": 16}, "and neither run tells its batch"),
        (
            {"train_batch_size": 64, "gradient_accumulation_steps": 4},
            {"gradient_accumulation_steps": 2},
            "is 4 in one run and 2 in the other, and the second run does not tell its batch",
        ),
    ],
)
def test_steps_whose_batches_nothing_tells_and_whose_settings_differ_are_not_compared(
    first: dict[str, float], second: dict[str, float], why: str
) -> None:
    found = compare(run_of(np.ones(20), **first), run_of(np.full(20, 2.0), **second))
    assert (found.answer, found.ratio, found.assumed) == ("cannot tell", None, "")
    assert found.why.endswith(why)


def rated(seconds: float, samples: float) -> Run:
    """Steps with a time and a rate, and no batch."""
    rates = [metric("samples_per_second", step, samples / seconds) for step in range(1, 21)]
    times = [metric("step_seconds", step, seconds) for step in range(1, 21)]
    return from_events(events([*rates, *times]))


def test_rates_beside_step_times_tell_whether_batches_are_the_same() -> None:
    alike = compare(rated(1.0, 64), rated(1.5, 64))
    assert (alike.answer, alike.assumed) == ("regression", "")
    told = compare(rated(1.0, 64), run_of(np.full(20, 1.5), train_batch_size=64))
    assert (told.answer, told.assumed) == ("regression", "")
    other = compare(rated(1.0, 64), rated(1.5, 128))
    assert other.answer == "cannot tell"
    assert "about 64 samples in one run and about 128 in the other" in other.why


def test_settings_that_differ_are_named_by_their_dotted_keys() -> None:
    first = {
        "dtype": "bf16",
        "ds_config": {"zero_optimization": {"stage": 2}},
        "odd": "<x object at 0x7f>",
    }
    second = {"dtype": "bf16", "ds_config": {"zero_optimization": {"stage": 1}, "bf16": True}}
    assert differing(first, second) == {"bf16": (None, True), "zero_optimization.stage": (2, 1)}


def fresh(name: str) -> Run:
    """The run of a sample log, to be changed."""
    return load(SAMPLES / f"{name}.log")


def shown(found: Comparison) -> dict[str, list[str]]:
    """The lines of the table by their labels, the last of those that stand twice."""
    console = Console(file=StringIO(), width=80)
    console.print(difference(found))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    cells = (re.split(r" {2,}", line.strip()) for line in lines)
    return {label: numbers for label, *numbers in cells}


@pytest.mark.parametrize(
    "names",
    [
        ("zero2_accumulation_0.16.9", "zero2_accumulation_0.19.8"),
        ("zero2_accumulation_0.16.9", "zero2_accumulation_0.16.9"),
        ("zero0_0.19.8", "zero3_0.19.8"),
    ],
)
def test_each_side_is_the_step_that_a_report_shows_and_its_parts_add_up_to_it(
    names: tuple[str, str],
) -> None:
    runs = [sample(name) for name in names]
    found = compare(runs[0], runs[1])
    for run, side in zip(runs, (found.first, found.second), strict=True):
        seen = overview(run)
        assert (side.step_seconds, side.steps) == (seen.seconds, seen.averaged)
        assert side.parts == [part for part in seen.parts if not part.inside]
        assert sum(part.seconds or 0.0 for part in side.parts) == pytest.approx(seen.seconds)
        assert sum(side.classes.values()) == pytest.approx(seen.seconds)


def test_sums_of_timers_are_judged_under_their_own_name_where_whole_steps_are_few() -> None:
    """One run's report averages four throughput lines, the other's 39 sums of timers."""
    found = compare(sample("zero2_accumulation_0.16.9"), sample("zero2_accumulation_0.19.8"))
    assert (found.seconds_from, found.first.rows, found.first.steps) == ("timers", 39, 4)
    lines = shown(found)
    assert lines["judged, sums of timers"] == ["31.1 ms", "41.8 ms", "+34 %"]
    assert (lines["times judged"], lines["times averaged"]) == (["39", "39"], ["4", "39"])
    assert lines["one step"] == ["37.8 ms", "41.8 ms"]  # not told by the same: no change
    assert lines["told by"] == ["throughput lines", "sums of timers"]
    assert lines["no timer"] == ["7.11 ms", "unknown"]
    assert "+34 % time in timers per step" in next(iter(lines))


def half_timed(seconds: float, steps: int) -> Run:
    """Steps whose timers are always the same; every fifth says how long all of it took."""
    rows: list[dict[str, Any]] = [{"kind": "config", "name": "train_batch_size", "value": 1.0}]
    for step in range(1, steps + 1):
        rows += [metric("loss", step, 1.0)]
        rows += timers("zero", step, forward=0.2, backward=0.4, step=0.1)
        rows += [] if step % 5 else [metric("samples_per_second", step, 1 / seconds)]
    return from_events(events(rows))


def test_whole_steps_are_judged_rather_than_sums_of_timers_where_both_runs_tell_enough() -> None:
    """What nobody timed makes the second one slower."""
    assert set(regular_steps(half_timed(1.0, 200).steps)["seconds_from"]) == {"timers"}
    found = compare(half_timed(1.0, 200), half_timed(1.5, 200))
    assert found.answer == "regression"
    assert found.ratio == pytest.approx(1.5)
    assert (found.seconds_from, found.first.rows) == ("throughput", found.first.steps)
    assert not any(label.startswith("judged") or "in timers" in label for label in shown(found))


def test_timers_let_no_run_pass_whose_few_whole_steps_are_slower() -> None:
    quick, slow = half_timed(1.0, 30), half_timed(1.5, 30)
    found = compare(quick, slow)
    assert (found.answer, found.ratio, found.needed) == ("cannot tell", 1.0, 8)
    assert found.why.endswith("whole steps, too few to judge, take 1.50 times as long")
    assert compare(quick, quick).answer == compare(slow, quick).answer == "none"


def test_a_rate_at_every_step_is_held_against_timers_by_the_timers_of_both() -> None:
    """The other run has a rate at every tenth step, which is odd, and so no mean of all."""
    longer, shorter = (lambda step: 0.1 if step % 10 else 0.3), (lambda _: 0.01)
    each, few, quick = printed(longer, every=1), printed(longer), printed(shorter, every=1)
    assert [set(regular_steps(run.steps)["seconds_from"]) for run in (each, few)] == [
        {"throughput"},
        {"timers"},
    ]
    same, slower = compare(each, few), compare(quick, few)
    assert (same.answer, same.seconds_from) == ("none", "timers")
    assert same.ratio == pytest.approx(1.0)
    assert slower.answer == "regression"
    assert slower.ratio == pytest.approx(1.02 / 0.91, rel=0.01)


def test_a_rate_at_every_step_is_not_held_against_timers_that_it_lacks() -> None:
    each, few = printed(lambda _: 0.1, every=1), printed(at_tenths)
    bare = from_events(each.told[each.told["kind"] != "phase"])
    found = compare(bare, few)
    assert found.answer == "cannot tell"
    assert (
        "from throughput lines in the first run and from sums of timers in the second" in found.why
    )


def test_timers_of_an_unknown_stage_are_told_as_a_report_tells_them() -> None:
    stage_unknown = sample("zero0_0.19.8")
    found = compare(stage_unknown, stage_unknown)
    lines = shown(found)
    assert lines["communication"] == ["≥3.71 ms", "≥3.71 ms"]
    assert lines[BLENT] == ["1.10 ms", "1.10 ms", "+0.0 %"]
    assert {"other", "compute"} & lines.keys() == set()


def test_a_run_whose_steps_tell_nothing_has_no_part_that_is_known() -> None:
    lines = shown(compare(sample("quiet_0.19.8"), sample("zero0_0.19.8")))
    assert lines["one step"] == ["unknown", "7.23 ms"]
    assert lines[BLENT] == ["unknown", "1.10 ms"]
    assert lines["told by"] == ["unknown", "sums of timers"]


def piped(*rows: dict[str, Any]) -> Run:
    """A pipeline of one replica: nothing reduces gradients, and nothing else is timed."""
    timed = timers("pipeline", 10, steps=10, forward=2.0, pipe_recv_grad=5.0)
    told = [{"kind": "config", "name": "data_parallel_size", "value": 1.0}, *rows]
    return from_events(events([*told, metric("step_seconds", 10, 1.0), *timed]))


def test_communication_that_only_one_run_logs_is_unknown_of_the_other_and_not_zero() -> None:
    call = {"kind": "comm", "name": "all_reduce", "step": 10, "steps": 10, "seconds": 1.0}
    logged, silent = piped(call), piped()
    assert overview(silent).classes["communication"] == 0.0
    lines = shown(compare(logged, silent))
    assert lines["communication"] == ["100 ms", "unknown"]
    assert shown(compare(silent, logged))["communication"] == ["unknown", "100 ms"]
    assert "communication" not in compare(silent, silent).first.classes


def test_lower_bounds_tell_no_change() -> None:
    lines = shown(compare(sample("zero0_0.19.8"), sample("zero2_accumulation_0.19.8")))
    assert lines["communication"] == ["≥3.71 ms", "≥26.1 ms"]
    assert lines["compute"] == ["unknown", "≤10.9 ms"]
    assert lines[BLENT] == ["1.10 ms", "–"]


def test_parts_of_a_sample_add_up_to_it() -> None:
    found = compare(sample("torchrun_tee_0.19.8"), sample("slow_data_0.19.8"))
    assert found.per == "sample"
    assert shown(found)["one sample"] == ["213 µs", "732 µs"]  # not told by the same
    for side in (found.first, found.second):
        parts = {part.name: part.seconds or 0.0 for part in side.parts}
        assert {UNTIMED, Class.COMPUTE} <= parts.keys()
        assert sum(parts.values()) == pytest.approx(side.step_seconds)


@pytest.mark.parametrize(
    ("names", "code", "answer", "first_words"),
    [
        (("zero2_accumulation_0.19.8", "straggler_0.19.8"), 3, "regression", "Slower"),
        (("straggler_0.19.8", "zero2_accumulation_0.19.8"), 0, "improvement", "Faster"),
        (("neox_pipeline_2023", "deepspeed_pipeline_2023"), 4, "cannot tell", "Cannot tell"),
        (("neox_pipeline_2023", "neox_pipeline_2023"), 0, "none", "No difference\nboth report"),
    ],
)
def test_the_command_answers_and_its_exit_code_agrees(
    cli: Dsprof,
    tmp_path: Path,
    names: tuple[str, str],
    code: int,
    answer: Answer,
    first_words: str,
) -> None:
    logs = [SAMPLES / f"{name}.log" for name in names]
    done = cli("compare", *logs, "--json", "found.json")
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith(first_words)
    told = json.loads((tmp_path / "found.json").read_text())
    assert told["schema"] == 1
    assert told["answer"] == answer


def test_a_run_too_short_to_judge_is_no_different_from_itself() -> None:
    run = sample("neox_pipeline_2023")
    found = compare(run, fresh("neox_pipeline_2023"))
    assert (found.answer, found.low, found.high) == ("none", 1.0, 1.0)
    slower = fresh("neox_pipeline_2023")
    slower.steps["seconds"] *= 1.0001
    assert compare(run, slower).answer == "cannot tell"


def test_other_versions_of_the_software_are_configured_differently() -> None:
    old, new = sample("straggler_0.16.9"), fresh("straggler_0.16.9")
    new.meta["versions"] = {"deepspeed": "0.19.8"}
    assert compare(old, new).settings == {"versions.deepspeed": ("0.16.9", "0.19.8")}


def test_a_run_that_failed_is_said_to_have_failed_however_fast_it_was() -> None:
    killed, whole = sample("killed_rank_0.19.8"), sample("zero0_0.19.8")
    found = compare(whole, killed)
    assert (found.first.failure, found.second.failure) == ("", killed.findings[0].title)
    console = Console(file=(file := StringIO()), width=200)
    console.print(difference(found))
    told = file.getvalue()
    assert "The second run failed: Rank 1 was killed by SIGKILL after step 19" in told
    assert "The first run" not in told


def test_what_each_stage_of_a_pipeline_says_of_itself_is_no_setting() -> None:
    found = compare(sample("pipeline_0.16.9"), sample("pipeline_slow_last_0.16.9"))
    assert {"stage", "stage_layers", "stage_parameters"}.isdisjoint(found.settings)
    assert found.settings["stage_1_layers"] == (3, 4)


def test_a_log_is_not_compared_with_a_recording_by_words_of_logs(tmp_path: Path) -> None:
    record(tmp_path, last=30)
    found = compare(sample("zero0_0.19.8"), load(tmp_path))
    assert found.why.endswith("in the first run and from recorded times in the second")
    assert shown(found)["told by"] == ["sums of timers", "recorded times"]


def accumulating(folder: Path, micro_batches: int, ms: int = 20) -> Run:
    """A rank without a stated batch, whose steps take `ms` for each of their micro-batches."""
    writer = Writer.create(folder, header())
    backward = writer.name("backward", 0, "compute")
    for step in range(1, 31):
        begin = step * 100 * MS
        for micro in range(micro_batches):
            at = begin + micro * ms * MS
            writer.span(backward, at, at + ms * MS, step, micro)
        writer.step(step, begin, begin + micro_batches * ms * MS)
    writer.close()
    return load(folder)


def test_recorded_steps_of_more_micro_batches_are_not_slower_and_fewer_not_faster(
    tmp_path: Path,
) -> None:
    one, four = accumulating(tmp_path / "one", 1), accumulating(tmp_path / "four", 4)
    found = compare(four, one)
    assert found.answer == "cannot tell"
    assert found.why == (
        "backward runs 4 times a step in one run and once in the other, and neither run tells its "
        "batch"
    )
    slower = compare(one, accumulating(tmp_path / "slower", 1, ms=30))
    assert slower.answer == "regression"
    assert slower.assumed == "the batch is the same in both: neither run tells it"


def test_parts_of_a_step_are_called_as_in_the_report() -> None:
    runs = [sample(f"{name}_0.16.9") for name in ("pipeline", "pipeline_slow_last")]
    console = Console(file=StringIO(), width=100)
    console.print(difference(compare(*runs)))
    assert isinstance(console.file, StringIO)
    assert "wait for a peer" in console.file.getvalue()


def by_bars(folder: Path, every: list[int], each: list[float]) -> Run:
    """A Trainer that logs its loss after so many steps, each of so many seconds, beside its bar."""
    took = done = 0
    lines = []
    for steps, seconds in zip(every, each, strict=True):
        done, took = done + steps, took + round(steps * seconds)
        clock = f"{took // 3600}:{took % 3600 // 60:02}:{took % 60:02}"
        lines.append(f" 50%|####  | {done}/9999 [{clock}<9:00:00,  {seconds:.2f}s/it]")
        lines.append(f"{{'loss': {9 - done / 1e4:.4f}, 'learning_rate': 1e-05, 'epoch': 0.1}}")
    log = folder / f"{each[0]}.log"
    log.write_text("\n".join([*lines, ""]))
    return load(log)


def test_what_a_bar_tells_of_many_steps_counts_for_as_many(tmp_path: Path) -> None:
    every = [10] * 10 + [100] * 15
    before, after = (by_bars(tmp_path, every, [s] * 10 + [4.0] * 15) for s in (8.0, 4.0))
    found = compare(before, after)
    assert found.ratio == pytest.approx(4 / 4.226, rel=0.001)
    assert found.first.seconds == found.first.step_seconds == overview(before).seconds


def test_the_step_of_one_engine_is_not_compared_with_that_of_another() -> None:
    def of_two(*seconds: float) -> Run:
        told = [
            metric("step_seconds", step, each, engine=engine)
            for step in range(1, 31)
            for engine, each in enumerate(seconds)
        ]
        return from_events(events(told))

    found = compare(of_two(1.0, 0.8), of_two(1.0, 1.2))
    assert found.answer == "cannot tell"
    assert found.why == ("engine 0 takes most time in the first run, and engine 1 in the second")
    assert compare(of_two(1.0, 0.8), of_two(1.2, 0.8)).answer == "regression"


def test_a_step_by_the_clock_is_held_against_rates_that_the_clock_confirms() -> None:
    before, after = between_steps(lambda _: 0.0), between_steps(lambda _: 0.06)
    ways = {overview(run).seconds_from for run in (before, after)}
    assert ways == {"throughput", "clock"}
    found = compare(before, after)
    assert found.answer == "regression"
    assert found.ratio == pytest.approx(1.6, rel=0.01)
    assert found.seconds_from == "clock"
    before.steps["at"] = before.steps["at"].where(before.steps["step"] < 0)  # without any
    assert compare(before, after).answer == "cannot tell"


def test_what_rates_leave_out_of_one_run_alone_is_no_difference() -> None:
    before = between_steps(lambda _: 0.009)
    after = between_steps(lambda _: 0.012, takes=lambda _: 0.098, mean=163.0)
    assert [overview(run).seconds_from for run in (before, after)] == ["throughput", "clock"]
    found = compare(before, after)
    assert found.answer == "none"
    assert found.ratio == pytest.approx(0.11 / 0.109, rel=0.005)


def test_evaluations_are_left_out_of_steps_by_the_clock() -> None:
    said = "Validation loss: 1.2345\n"
    before = between_steps(lambda step: 0.1 * is_twentieth(step), said=said)
    after = between_steps(lambda step: 0.06 + 0.1 * is_twentieth(step), said=said)
    assert compare(before, after).ratio == pytest.approx(1.6, rel=0.01)


def test_a_run_does_not_pass_by_rates_if_coarse_time_stamps_show_longer_steps() -> None:
    before, after = (
        run_of_text(*(re.sub(r"(:\d\d),\d{3}\]", r"\1,000]", line) for line in written(passes)))
        for passes in (lambda _: 0.0, lambda _: 0.06)
    )
    found = compare(before, after)
    assert found.answer == "cannot tell"
    assert "by the time stamps steps take 1.6" in found.why
    assert compare(after, before).answer != "regression"
