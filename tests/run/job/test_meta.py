"""What the job was told and what wrote its log: stated, inferred with a reason, or absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dsprof.recording import Writer
from dsprof.run import Run, from_events, load
from dsprof.run.releases import parse
from dsprof.run.versions import versions
from tests.recording.recorded import header, write_steps
from tests.run.run_rows import config, events, grammar_with, metric


def run_of(*rows: dict[str, Any], lines: tuple[str, ...] = ()) -> Run:
    meta = {"fingerprints": dict.fromkeys(lines, 3)}
    return from_events(events(rows), grammar=grammar_with(), meta=meta)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("logging.py:75",), "0.8.1"),
        (("logging.py:123",), "0.18.0 to 0.19.8"),
        (("logging.py:123", "timer.py:264"), "0.18.3 to 0.19.8"),
        (("logging.py:123", "timer.py:265"), "0.18.0 to 0.18.2"),
        (("logging.py:68",), "0.4.2 to 0.5.6 or 0.7.0 to 0.8.0"),
        (("logging.py:75", "logging.py:123"), ""),  # they contradict each other
        (("mine.py:75",), ""),
    ],
)
def test_logger_lines_tell_the_version_as_far_as_they_do(lines: tuple[str, ...], text: str) -> None:
    run = run_of(metric("loss", 1, 1.0))
    assert str(versions(run.events, {"fingerprints": dict.fromkeys(lines, 1)})) == text


@pytest.mark.parametrize(
    ("lines", "day", "text"),
    [
        ((68,), "2021-07-14", "0.4.2 to 0.4.4"),  # 0.4.3 was the last release: main was 0.4.4
        ((68,), "2022-03-01", "0.4.2 to 0.5.6"),
        ((68,), "2022-08-30", "0.4.2 to 0.5.6 or 0.7.0 to 0.7.3"),
        ((96,), "2023-05-04", "0.9.0 to 0.9.3"),
        ((96,), "2026-01-01", "0.9.0 to 0.15.2"),
        ((96,), "2022-01-01", "0.9.0 to 0.15.2"),  # not its dates
        ((96,), "1970-01-01", "0.9.0 to 0.15.2"),
    ],
)
def test_a_version_that_was_not_made_yet_did_not_print_it(
    lines: tuple[int, ...], day: str, text: str
) -> None:
    dated = metric("loss", 1, 1.0) | {"at": pd.Timestamp(day, tz="UTC")}
    told = {"fingerprints": {f"logging.py:{line}": 1 for line in lines}}
    assert str(versions(run_of(dated).events, told)) == text


def test_what_a_peak_is_of_a_gpus_memory_tells_how_much_that_is() -> None:
    def line(step: int, gib: float, percent: float) -> list[dict[str, Any]]:
        same = {"step": step, "record": step}
        peak = {"kind": "memory", "name": "max_reserved", "bytes": gib * 2**30}
        return [peak | same, metric("max_reserved_percent", step, percent) | same]

    run = run_of(*line(1, 9.25, 11.56), *line(2, 76.0, 95.0))
    assert run.meta["gpu_memory_bytes"] == pytest.approx(80 * 2**30)
    assert "gpu_memory_bytes" not in run_of(*line(1, 9.25, 11.56)[:1]).meta


def test_a_stated_version_wins() -> None:
    run = run_of(config("deepspeed_version", "0.9.5+cu118"), lines=("logging.py:123",))
    assert run.meta["versions"] == {"deepspeed": "0.9.5+cu118"}
    assert run.meta["version_range"] == "0.9.5 (stated)"


def test_a_version_that_one_line_pins_is_a_version() -> None:
    assert run_of(lines=("logging.py:75",)).meta["versions"] == {"deepspeed": "0.8.1"}


def test_a_range_is_no_version() -> None:
    meta = run_of(lines=("logging.py:123",)).meta
    assert "versions" not in meta
    assert meta["version_range"] == "0.18.0 to 0.19.8 (logging.py:123)"


def test_the_shape_of_throughput_lines_narrows_the_range() -> None:
    old = metric("samples_per_second_mean", 10, 1.0, pattern="deepspeed.throughput_01")
    assert (
        run_of(old, lines=("logging.py:68",)).meta["version_range"].startswith("0.4.2 to 0.5.6 (")
    )


def bare(pattern: str, raw: str, **more: Any) -> dict[str, Any]:
    """A row of a line that was printed without the logger's header."""
    return {"kind": "phase", "name": raw, "raw": raw, "seconds": 0.1, "pattern": pattern} | more


@pytest.mark.parametrize(
    ("row", "lines", "text"),
    [
        (bare("deepspeed.timers", "fwd_microstep"), ("launch.py:285",), "0.18.0 or later"),
        (
            bare("deepspeed_memory.see_memory", "max_allocated"),
            ("launch.py:285",),
            "0.18.3 or later",
        ),
        (
            bare("deepspeed.timers", "fwd_microstep"),
            (),
            "0.10.1 or later",
        ),  # headers may be cut off
        (
            bare("deepspeed.timers", "fwd", at=pd.Timestamp("2026-12-01")),
            ("launch.py:285", "logging.py:900"),
            "0.10.1 or later",
        ),
        (
            bare("deepspeed.timers", "fwd", at=pd.Timestamp("2026-12-01")),
            ("launch.py:285",),
            "0.18.0 or later",
        ),
        (
            bare("deepspeed_memory.see_memory", "max_allocated", at=pd.Timestamp("2026-12-01")),
            ("launch.py:285", "logging.py:900"),
            "0.18.3 or later",
        ),
        (bare("deepspeed.timers", "forward_microstep"), ("logging.py:96",), "0.9.0 to 0.10.0"),
    ],
    ids=[
        "printed timers",
        "printed memory",
        "no header anywhere",
        "a header",
        "the time of a wrapper",
        "memory, the time of a wrapper",
        "older words",
    ],
)
def test_how_a_line_is_printed_narrows_the_range(
    row: dict[str, Any], lines: tuple[str, ...], text: str
) -> None:
    run = run_of(row, metric("loss", 1, 1.0), lines=lines)
    assert run.meta["version_range"].startswith(f"{text} (")


def test_the_timers_of_a_loop_around_the_engine_tell_no_version_of_deepspeed() -> None:
    row = bare("deepspeed.timers", "forward")
    assert run_of(row | {"timers": "zero"}).meta["version_range"].startswith("0.1.0 to 0.10.0 (")
    loops = [row | {"timers": "megatron-wrapped"}, metric("mfu", 1, 29.95)]
    assert "version_range" not in run_of(*loops).meta


def test_the_first_releases_counted_otherwise() -> None:
    run = run_of(config("deepspeed_version", "2.1"))
    assert run.meta["versions"] == {"deepspeed": "2.1"}
    assert run.meta["version_range"] == "0.1.0 to 0.2.0 (stated)"


def test_the_fork_has_no_deepspeed_version() -> None:
    meta = run_of(metric("communication_percent", 10, 76.0), lines=("logging.py:60",)).meta
    assert meta["framework"] == "gpt-neox"
    assert "versions" not in meta


def test_a_version_that_is_none_is_ignored() -> None:
    assert parse("0.0.0") == (0, 0, 0)
    assert "versions" not in run_of(config("deepspeed_version", "unknown")).meta


def test_timers_of_megatron_alone_tell_that_it_is_no_deepspeed_job() -> None:
    timer = {"kind": "phase", "name": "forward-compute", "seconds": 0.1, "timers": "megatron"}
    of = {"pattern": "deepspeed.timers"}
    assert run_of(timer | of).meta["framework"] == "megatron"
    assert run_of(timer | of | {"timers": "zero"}).meta["framework"] == "deepspeed"


@pytest.mark.parametrize(("framework", "named"), [("deepspeed", True), ("", False)])
def test_a_recording_is_deepspeeds_where_its_engine_was_recorded(
    tmp_path: Path, framework: str, named: bool
) -> None:
    """Libraries import it: that it is there does not say that it trains."""
    versions = {"deepspeed": "0.19.8", "torch": "2.13.0"}
    settings = {"framework": framework} if framework else {}
    writer = Writer.create(tmp_path, header(versions=versions, config=settings))
    write_steps(writer, 1, 2)
    writer.close()
    meta = load(tmp_path).meta
    assert ("deepspeed" in meta["versions"]) is named
    assert ("version_range" in meta) is named


def test_unknown_things_are_absent() -> None:
    meta = run_of(metric("loss", 1, 1.0)).meta
    assert meta == {"sources": ["a.log"]}


def test_the_jobs_own_json_fills_what_no_line_states() -> None:
    own = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": "auto",
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        "bf16": {"enabled": True},
    }
    found = run_of(config("ds_config", json.dumps(own))).config
    assert found["ds_config"] == own
    assert (found["micro_batch_size"], found["zero_stage"], found["dtype"]) == (4, 2, "bf16")
    assert found["offload_optimizer"] == "cpu"
    assert "gradient_accumulation_steps" not in found


def test_json_without_zero_means_stage_0_and_broken_json_means_nothing() -> None:
    assert run_of(config("ds_config", '{"fp16": {}}')).config["zero_stage"] == 0
    assert "zero_stage" not in run_of(config("ds_config", "{" * 100_000)).config


def test_the_last_statement_holds() -> None:
    assert run_of(config("world_size", 4), config("world_size", 8)).config["world_size"] == 8


def test_batch_sizes_follow_from_each_other() -> None:
    whole = run_of(
        config("micro_batch_size", 2),
        config("gradient_accumulation_steps", 4),
        config("data_parallel_size", 8),
    )
    assert whole.config["train_batch_size"] == 64
    accumulation = run_of(
        config("micro_batch_size", 2),
        config("train_batch_size", 64),
        config("data_parallel_size", 8),
    )
    assert accumulation.config["gradient_accumulation_steps"] == 4


def test_the_topology_gives_the_layout() -> None:
    text = "{ProcessCoord(pipe=0, data=0): 0, ProcessCoord(pipe=1, data=2): 5}"
    found = run_of(config("topology", text)).config
    assert found["pipeline_parallel_size"] == 2
    assert found["data_parallel_size"] == 3
    assert found["tensor_parallel_size"] == 1


def test_the_stages_of_a_pipeline_are_not_counted_as_tensor_parallelism() -> None:
    topology = config(
        "topology", "{ProcessCoord(pipe=0, data=0): 0, ProcessCoord(pipe=1, data=0): 1}"
    )
    found = run_of(config("model_parallel_size", 2), topology).config
    assert (found["tensor_parallel_size"], found["pipeline_parallel_size"]) == (1, 2)
    assert found["world_size"] == 2


def test_model_parallelism_alone_does_not_tell_tensors_from_stages() -> None:
    assert "tensor_parallel_size" not in run_of(config("model_parallel_size", 2)).config
    assert run_of(config("model_parallel_size", 1)).config["tensor_parallel_size"] == 1


def _stage(rank: int, stage: int, parameters: int) -> list[dict[str, Any]]:
    said = {"stage": stage, "stage_parameters": parameters, "total_parameters": 1000}
    return [config(name, value, rank=rank) for name, value in said.items()]


def test_stages_with_all_parameters_of_a_model_are_all_its_pipeline_has() -> None:
    found = run_of(*_stage(1, 1, 400), *_stage(0, 0, 600)).config
    assert found["pipeline_parallel_size"] == 2
    sharded = [row for rank in range(4) for row in _stage(rank, rank // 2, 250)]
    assert run_of(*sharded).config["pipeline_parallel_size"] == 2


def test_stages_of_which_some_are_not_told_do_not_say_how_many_there_are() -> None:
    assert "pipeline_parallel_size" not in run_of(*_stage(0, 0, 600), *_stage(2, 1, 300)).config


def test_a_layout_of_more_ranks_than_there_are_is_unknown() -> None:
    sizes = ("tensor_parallel_size", "pipeline_parallel_size")
    found = run_of(config("world_size", 2), *(config(name, 2) for name in sizes)).config
    assert not set(sizes) & set(found)


def test_zero_is_no_setting_of_a_job_that_keeps_deepspeed_off() -> None:
    off = run_of(config("deepspeed", "False"), config("zero_stage", 1))
    on = run_of(config("deepspeed", "True"), config("zero_stage", 1))
    assert "zero_stage" not in off.meta
    assert on.meta["zero_stage"] == 1


def test_settings_in_which_actor_and_critic_differ_are_unknown() -> None:
    told = [
        {"kind": "config", "name": name, "value": value}
        for name, value in [
            ("gradient_accumulation_steps", 4), ("zero_stage", 3), ("world_size", 8),
            ("gradient_accumulation_steps", 2), ("zero_stage", 3),
        ]
    ]  # fmt: skip
    two = [metric("lr", 1, 1e-5), metric("lr", 1, 1e-5, engine=1)]
    known = from_events(events([*told, *two]), grammar=grammar_with()).config
    assert "gradient_accumulation_steps" not in known
    assert (known["zero_stage"], known["world_size"]) == (3, 8)
    one = from_events(events([*told, two[0]]), grammar=grammar_with()).config
    assert one["gradient_accumulation_steps"] == 2


@pytest.mark.parametrize("odd", [np.nan, np.inf, -1.0, 2.5, 1e300])
def test_a_count_that_can_be_none_is_unknown(odd: float) -> None:
    assert "world_size" not in run_of(config("world_size", odd), metric("loss", 1, 1.0)).config


def test_a_word_is_no_count() -> None:
    run = run_of(config("world_size", "nan"), config("micro_batch_size", "auto"))
    assert not {"world_size", "micro_batch_size"} & set(run.config)


@pytest.mark.parametrize("odd", ["9" * 400, "9" * 5000, "-1", "1e400", "NaN", "Infinity", '"nan"'])
def test_an_absurd_number_of_the_jobs_json_is_unknown(odd: str) -> None:
    text = f'{{"train_micro_batch_size_per_gpu": {odd}, "gradient_accumulation_steps": 4}}'
    run = run_of(config("ds_config", text), metric("samples_per_second", 1, 2.0))
    assert "micro_batch_size" not in run.config
    assert run.config["gradient_accumulation_steps"] == 4
    assert run.steps["seconds"].isna().all()


def test_settings_are_those_of_the_launch_that_took_most_time() -> None:
    def told(batch: int, *, segment: int, steps: int) -> list[dict[str, Any]]:
        each = [metric("step_seconds", step, 1.0) for step in range(1, steps + 1)]
        rows = [config("train_batch_size", batch), *each]
        return [row | {"segment": segment} for row in rows]

    def batch(*rows: dict[str, Any]) -> Any:
        return run_of(*rows).meta["train_batch_size"]

    assert batch(*told(64, segment=0, steps=9), *told(32, segment=1, steps=3)) == 64
    assert batch(*told(64, segment=0, steps=3), *told(32, segment=1, steps=9)) == 32
    later = [config("seq_length", 2048) | {"segment": 1}]
    run = run_of(*told(64, segment=0, steps=9), *later)
    assert "seq_length" not in run.config  # what was told later may not have held before
