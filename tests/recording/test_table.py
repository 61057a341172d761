"""What is written comes back as events, in order, in the columns of every other source."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsprof.events import COLUMNS, Class
from dsprof.recording import (
    ASYNC,
    Recordings,
    RowKind,
    Unit,
    Writer,
    is_recording,
    read_folder,
    stream,
)
from dsprof.recording.layout import NAME_BITS, ROW, TEXT
from dsprof.recording.table import Names
from dsprof.schema import SCHEMA
from tests.recording.recorded import MS, events, header, record, step_numbers

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=120)
MOMENTS = st.integers(1, 2**62)
LENGTHS = st.integers(0, 2**50)
STEPS = st.integers(-1, 2**31 - 1)
FLOATS = st.floats(allow_nan=False)

SPAN = st.tuples(st.just("span"), TEXTS, MOMENTS, LENGTHS, STEPS, st.integers(-1, 2**31 - 1))
CALL = st.tuples(st.just("call"), TEXTS, MOMENTS, LENGTHS, STEPS, st.integers(0, 2**53))
METRIC = st.tuples(st.just("metric"), TEXTS, MOMENTS, FLOATS, STEPS, st.sampled_from(Unit))
MEMORY = st.tuples(st.just("memory"), TEXTS, MOMENTS, st.integers(0, 2**53), STEPS, st.just(0))
STEP = st.tuples(st.just("step"), TEXTS, MOMENTS, LENGTHS, STEPS, st.integers(0, 2**31 - 1))
THINGS = st.lists(st.one_of(SPAN, CALL, METRIC, MEMORY, STEP), max_size=40)

COLUMN = {Unit.VALUE: "value", Unit.SECONDS: "seconds", Unit.BYTES: "bytes", Unit.COUNT: "count"}


def write(writer: Writer, thing: tuple[Any, ...]) -> dict[str, Any]:
    """Write one thing; what its event must say."""
    what, text, at, measure, step, more = thing
    said: dict[str, Any] = {"name": text, "step": None if step < 0 else step}
    if what == "span":
        writer.span(writer.name(text, 0, Class.DATA), at, at + measure, step, more)
        return said | {"kind": "phase", "seconds": measure * 1e-9, "text": "data", "raw": text}
    if what == "call":
        parent = writer.name("backward")
        writer.collective(writer.name(text, parent), parent, at, at, measure, step, 0, more)
        said |= {"kind": "comm", "raw": f"backward/{text}", "text": "backward", "bytes": more}
        return said | {"value": measure * 1e-9, "seconds": None}
    if what == "metric":
        writer.metric(writer.name(text), measure, step, more, 0, at)
        return said | {"kind": "metric", COLUMN[more]: measure}
    if what == "memory":
        writer.memory(writer.name(text), measure, step, at)
        return said | {"kind": "memory", "bytes": measure}
    writer.step(step, at, at + measure)
    return said | {"kind": "metric", "name": "step_seconds", "seconds": measure * 1e-9}


@settings(max_examples=60)
@given(st.lists(THINGS, max_size=4))
def test_whatever_is_written_is_read_back(flushes: list[list[tuple[Any, ...]]]) -> None:
    order = {"span": 0, "call": 1, "metric": 2, "memory": 2, "step": 3}
    with TemporaryDirectory() as folder:
        writer = Writer.create(folder, header())
        said = []
        for things in flushes:
            told = [write(writer, thing) for thing in things]
            by_kind = sorted(range(len(things)), key=lambda i: order[things[i][0]])
            said += [told[i] for i in by_kind]
            writer.flush()
        writer.close()
        found = events(Path(folder))
    found = found[found["line"] > 0].reset_index(drop=True)
    assert len(found) == len(said)
    for expected, row in zip(said, found.to_dict("records"), strict=True):
        for column, value in expected.items():
            if value is None:
                assert pd.isna(row[column])
            elif isinstance(value, str):
                assert row[column] == value
            else:
                assert row[column] == pytest.approx(value, rel=1e-12)


def test_recordings_and_logs_fill_the_same_table(tmp_path: Path) -> None:
    assert tuple(SCHEMA.names) == COLUMNS
    record(tmp_path, 2)
    assert read_folder(tmp_path).schema.equals(SCHEMA)


def test_a_span_in_a_micro_batch_sums_over_no_whole_step(tmp_path: Path) -> None:
    record(tmp_path, 1)
    found = events(tmp_path)
    phases = found[found["kind"] == "phase"]
    sums = found["steps"].notna()
    assert set(zip(found["name"], sums, strict=True)) == {
        ("forward", False), ("backward", False), ("all_reduce", False), ("step", True),
        ("loss", True), ("step_seconds", True), ("world_size", False),
    }  # fmt: skip
    assert (phases["timers"] == "hook").all()
    assert found.loc[found["kind"] != "phase", "timers"].isna().all()


def test_a_row_of_step_0_is_of_a_step_and_one_of_none_is_not(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    for step in (0, -1):
        writer.metric(writer.name("loss"), 1.0, step)
    writer.close()
    found = events(tmp_path).query("name == 'loss'")
    assert found["step"].dropna().tolist() == [0]
    assert found["steps"].fillna(0).tolist() == [1, 0]


def test_a_step_is_told_of_the_moment_when_it_ended(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    begin = 10**12
    writer.metric(writer.name("loss"), 1.0, 1, at_ns=begin)
    writer.step(1, begin, begin + 100 * MS)
    writer.close()
    at = events(tmp_path).set_index("name")["at"]
    assert at["step_seconds"] - at["loss"] == pd.Timedelta("100ms")


def test_rows_are_numbered_on_however_many_portions_they_are_read_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, 3)
    whole = events(tmp_path)
    monkeypatch.setattr(stream, "PORTION", 4 * ROW)
    pd.testing.assert_frame_equal(events(tmp_path), whole, check_categorical=False)


def test_lines_are_row_numbers_and_records_are_unique(tmp_path: Path) -> None:
    path = record(tmp_path, 3)
    found = events(tmp_path)
    loss = found[found["name"] == "loss"].iloc[1]
    row = path.read_bytes()[4096:][(loss["line"] - 1) * 64 :][:64]
    assert row[0] == RowKind.METRIC
    assert np.frombuffer(row[24:32], "<f8")[0] == loss["value"] == 0.5
    assert found["record"].is_unique
    assert set(found["source"]) == {str(path)}


def test_what_the_backend_does_not_tell_is_missing_and_never_zero(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, {"rank": 0})
    writer.collective(writer.name("all_gather"), 0, 10, 20, -1, 3, flags=ASYNC)
    writer.collective(writer.name("broadcast"), 0, 10, 20, 30, 3, duration_ns=5_000_000)
    writer.span(writer.name("forward"), 10, 20, 3)
    writer.close()
    found = events(tmp_path).set_index("name")
    missing = found.isna()
    assert missing.loc["all_gather", ["value", "seconds", "text"]].all()
    assert found.loc["broadcast", "seconds"] == pytest.approx(0.005)
    assert missing.loc["forward", "value"]  # no time of the device's own
    assert missing["host"].all()


def test_what_took_no_time_took_none_and_is_not_missing(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    writer.collective(writer.name("all_gather"), 0, 10, 20, 0, 3, count=7, duration_ns=0)
    writer.span(writer.name("forward"), 10, 20, 3, gpu_ns=0)
    writer.span(writer.name("backward"), 10, 20, 3, gpu_ns=3 * MS)
    writer.close()
    found = events(tmp_path).set_index("name")
    assert list(found.loc["all_gather", ["value", "seconds", "count"]]) == [0, 0, 7]
    assert list(found.loc[["forward", "backward"], "value"]) == [0, pytest.approx(0.003)]


def test_a_loss_that_is_not_a_number_says_so(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    writer.metric(writer.name("loss"), math.nan, 4)
    writer.metric(writer.name("loss"), math.inf, 5)
    writer.close()
    found = events(tmp_path).query("name == 'loss'")
    assert found["text"].iloc[0] == "nan"
    assert found["value"].iloc[1] == math.inf


def test_a_phase_has_the_class_that_it_was_given(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    for class_ in Class:
        writer.span(writer.name(f"a {class_}", 0, class_), 0, 10, 1)
    writer.close()
    found = events(tmp_path).query("kind == 'phase'").set_index("name")["text"]
    assert found.to_dict() == {f"a {class_}": str(class_) for class_ in Class}


def test_a_phase_without_a_class_has_its_parents(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    step = writer.name("step", 0, Class.OPTIMIZER)
    norm = writer.name("clip", writer.name("norm", step))
    writer.span(norm, 0, 10, 1)
    writer.span(writer.name("tokenize"), 0, 10, 1)
    writer.close()
    found = events(tmp_path).set_index("name")
    assert found.loc["clip", "raw"] == "step/norm/clip"
    assert found.loc["clip", "text"] == "optimizer"
    assert found.loc["tokenize", "text"] == "other"


def test_a_word_may_be_a_metric_before_it_is_a_phase(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    metric = writer.name("data")
    phase = writer.name("data", 0, Class.DATA)
    assert metric == phase == writer.name("data")
    writer.metric(metric, 1.0, 1)
    writer.span(phase, 0, 10, 1)
    writer.close()
    assert list(events(tmp_path).query("kind == 'phase'")["text"]) == ["data"]


@pytest.mark.parametrize("size", [0, 47, 48, 49, 96, 5000, 200_000])
def test_long_texts_come_back_whole(tmp_path: Path, size: int) -> None:
    text = "".join(chr(0x3B1 + i % 24) for i in range(size))
    writer = Writer.create(tmp_path, header())
    writer.problem("exception", text, 7)
    writer.close()
    found = events(tmp_path).query("kind == 'problem'").iloc[0]
    assert found["name"] == "exception"
    assert (found["text"] if size else "") == text


def test_the_headers_configuration_becomes_events(tmp_path: Path) -> None:
    config = {"zero_stage": 3, "dtype": "bf16", "ds_config": {"a": [1]}, "unknown": None}
    writer = Writer.create(
        tmp_path, header(world=16, versions={"deepspeed": "0.19.8"}, config=config)
    )
    writer.config("timers.throughput.synchronized", 1.0)
    writer.config("network", "Socket")
    writer.close()
    found = events(tmp_path).query("kind == 'config'").set_index("name")
    assert found["value"].dropna().to_dict() == {
        "world_size": 16, "zero_stage": 3, "timers.throughput.synchronized": 1,
    }  # fmt: skip
    assert found["text"].dropna().to_dict() == {
        "deepspeed_version": "0.19.8", "dtype": "bf16", "ds_config": '{"a": [1]}',
        "network": "Socket",
    }  # fmt: skip


def test_gpu_samples_and_overhead_have_their_columns(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    uuid = writer.name("GPU-5d1a")
    writer.gpu(writer.name("power"), 412.5, gpu=uuid)
    writer.gpu(writer.name("used"), 1e9, unit=Unit.BYTES, gpu=uuid)
    writer.metric(writer.name("overhead"), 25e-6, 9, Unit.SECONDS)
    writer.close()
    found = events(tmp_path).set_index("name")
    assert list(found.loc[["power", "used"], "text"]) == ["GPU-5d1a"] * 2
    assert found.loc["power", "value"] == 412.5
    assert found.loc["used", "bytes"] == 1e9
    assert found["rank"].isna().to_dict() == {
        "world_size": False, "power": True, "used": True, "overhead": False,
    }  # fmt: skip
    assert (found.loc["overhead", "seconds"], found.loc["overhead", "step"]) == (25e-6, 9)


def test_moments_are_utc(tmp_path: Path) -> None:
    before = pd.Timestamp.now("UTC").tz_localize(None)
    writer = Writer.create(tmp_path, header())
    writer.metric(writer.name("loss"), 1.0, 1)
    writer.close()
    at = events(tmp_path).query("name == 'loss'")["at"].iloc[0]
    assert abs(at - before) < pd.Timedelta("5s")


def test_several_engines_stay_apart(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    for engine in (0, 1):
        writer.span(writer.name("forward"), 0, MS, 1, engine=engine)
        writer.step(1, 0, MS, engine=engine)
    writer.close()
    found = events(tmp_path)
    assert sorted(found.loc[found["name"] == "step_seconds", "engine"]) == [0, 1]


def test_a_folder_is_told_from_logs(tmp_path: Path) -> None:
    assert not is_recording(tmp_path)
    path = record(tmp_path / "run", 1)
    assert is_recording(tmp_path)
    renamed = path.rename(tmp_path / "seven.bin")
    assert is_recording(renamed)
    assert step_numbers(events(renamed)) == [1]
    log = tmp_path / "run.log"
    log.write_text("step=1")
    assert not is_recording(log)
    assert not is_recording(tmp_path / "nothing")


def test_an_unknown_kind_of_row_is_passed_over(tmp_path: Path) -> None:
    path = record(tmp_path, 2)
    data = bytearray(path.read_bytes())
    data += bytes([99]) + bytes(63)
    path.write_bytes(data)
    assert step_numbers(events(tmp_path)) == [1, 2]


def test_a_name_that_nothing_defines_is_missing(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    writer.metric(4711, 1.0, 1)
    writer.close()
    assert events(tmp_path).query("kind == 'metric'")["name"].isna().all()


def test_nothing_recorded_gives_an_empty_table(tmp_path: Path) -> None:
    recordings = Recordings([tmp_path])
    assert recordings.follow().num_rows == 0
    assert recordings.facts() == {"sources": [], "recordings": []}


def test_where_no_word_is_told_stands_a_place_within_the_dictionary(tmp_path: Path) -> None:
    """pyarrow looks a null's place up too where it unifies dictionaries."""
    writer = Writer.create(tmp_path, header())
    writer.metric(writer.name("loss"), 1.0, 1)
    writer.metric(writer.name("lr"), 1.0, 1, text=writer.name("said"))
    writer.close()
    texts = read_folder(tmp_path)["text"].chunks
    assert sum(text.null_count for text in texts)
    for text in filter(len, texts):
        assert np.frombuffer(text.indices.buffers()[1], np.int32)[: len(text)].min() == 0


def test_a_name_that_is_defined_again_from_its_first_piece_is_that_name_alone() -> None:
    """The write that had the other pieces was lost."""
    names = Names()
    for piece, text in ((0, b"forw"), (0, b"forw"), (1, b"ard")):
        row = TEXT.pack(RowKind.TEXT, len(text), 1, 7, 0, piece, 2, text)
        names.define(row, bytes([RowKind.TEXT]))
    assert names.text == {7: "forward"}


def test_a_name_with_a_number_that_no_writer_gives_is_left_out() -> None:
    names = Names()
    for number in (7, 1 << NAME_BITS, (1 << 32) - 1):
        names.define(
            TEXT.pack(RowKind.TEXT, 7, 1, number, 0, 0, 1, b"forward"), bytes([RowKind.TEXT])
        )
    assert names.text == {7: "forward"}
