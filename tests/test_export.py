"""Tables for others: what comes back is what went in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from dsprof.errors import DsprofError
from dsprof.export import TABLES, export, trace
from dsprof.export.timeline import recorded
from dsprof.export.trace import timed
from dsprof.recording import Writer
from dsprof.run import Run, from_events, load
from dsprof.text.document import to_json
from tests.conftest import SAMPLES, Dsprof
from tests.findings.plants import metric, phase, run_of
from tests.recording.recorded import CLASSES, MS, header, record, record_pauses, write_steps

Sample = Callable[[str], Run]

SEED = "neox_pipeline_2023"


@pytest.mark.parametrize("table", TABLES)
def test_parquet_holds_every_table_as_it_is(sample_run: Sample, tmp_path: Path, table: str) -> None:
    run = sample_run("straggler_0.16.9")
    export(run, tmp_path / "run.parquet", table)
    back = pd.read_parquet(tmp_path / "run.parquet")
    told = getattr(run, table)
    assert list(back.columns) == list(told.columns)
    assert to_json(back.to_dict("records")) == to_json(told.to_dict("records"))


def test_csv_keeps_numbers_and_leaves_the_unknown_empty(sample_run: Sample, tmp_path: Path) -> None:
    export(sample_run(SEED), tmp_path / "steps.csv", "steps")
    back = pd.read_csv(tmp_path / "steps.csv")
    assert list(back["seconds"]) == [5.658, 5.792, 5.797]
    assert back["offload"].isna().all()


def test_json_and_jsonl_hold_the_same_rows(sample_run: Sample, tmp_path: Path) -> None:
    run = sample_run(SEED)
    export(run, tmp_path / "run.json")
    export(run, tmp_path / "run.jsonl")
    rows = json.loads((tmp_path / "run.json").read_text())
    assert rows == [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert len(rows) == len(run.events)
    losses = [row["value"] for row in rows if row["name"] == "loss"]
    assert losses == [11.0396, 9.2521, 9.1411]


def test_an_empty_table_is_an_empty_list(sample_run: Sample, tmp_path: Path) -> None:
    export(sample_run(SEED), tmp_path / "gpu.json", "gpu")
    assert json.loads((tmp_path / "gpu.json").read_text()) == []


def test_a_trace_ends_each_step_where_the_log_stamps_it(sample_run: Sample) -> None:
    run = sample_run(SEED)
    steps = [event for event in trace(run, run.steps) if event["name"] == "step 30"]
    stamped = run.steps["at"][run.steps["step"] == 30].iloc[0].timestamp()
    assert len(steps) == 1
    assert steps[0]["dur"] == pytest.approx(5.792e6)
    assert (steps[0]["ts"] + steps[0]["dur"]) / 1e6 == pytest.approx(stamped)


def test_in_a_trace_children_lie_inside_their_parents(sample_run: Sample) -> None:
    run = sample_run("zero2_accumulation_0.16.9")
    step = int(run.phases["step"].max())
    rows = run.phases[run.phases["step"] == step].set_index("name")
    slices = {
        e["name"]: e
        for e in trace(run, run.steps)
        if e["ph"] == "X" and e["tid"] and e["args"]["line"]
    }
    inner, outer = slices["backward_inner"], slices["backward"]
    assert rows.loc["backward_inner", "parent"] == "backward"
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1


def test_in_a_trace_phases_of_an_unknown_rank_are_those_of_no_rank() -> None:
    rows = [phase("forward", 1, 0.3, rank) for rank in (1, 3)]
    rows.append(phase("forward", 1, 0.4) | {"rank": None})
    run = run_of([*rows, metric("step_seconds", 1, 1.0)])
    told = list(trace(run, run.steps))
    lanes = {e["tid"]: e["args"]["name"] for e in told if e["name"] == "thread_name"}
    assert {lanes[e["tid"]]: round(e["dur"]) for e in told if e["ph"] == "X"} == {
        "optimizer steps": 1_000_000,
        "rank 1": 300_000,
        "rank 3": 300_000,
        "rank unknown": 400_000,
    }


def test_in_the_trace_of_a_log_several_engines_share_no_lane_and_no_counter() -> None:
    """Slices of one lane that overlap are cut or left out; a counter would jump between both."""
    rows = [
        row | {"engine": engine, "at": pd.Timestamp("2026-01-01") + pd.Timedelta(seconds=2 * step)}
        for step in (1, 2)
        for engine in (0, 1)
        for row in (
            metric("step_seconds", step, 2.0 - engine),
            metric("loss", step, 1.0 + engine),
            phase("forward", step, 0.3),
        )
    ]
    run = run_of(rows)
    told = list(trace(run, run.steps))
    lanes = {e["tid"]: e["args"]["name"] for e in told if e["name"] == "thread_name"}
    took = {lanes[e["tid"]]: round(e["dur"]) for e in told if e["name"] == "step 2"}
    assert took == {"optimizer steps, engine 0": 2_000_000, "optimizer steps, engine 1": 1_000_000}
    assert {"rank 0, engine 0", "rank 0, engine 1"} <= set(lanes.values())
    losses = {e["name"]: e["args"]["loss"] for e in told if "loss" in e["name"]}
    assert losses == {"loss of engine 0": 1.0, "loss of engine 1": 2.0}


def test_a_run_of_events_without_sources_is_exported(tmp_path: Path) -> None:
    export(from_events(pd.DataFrame(columns=["kind"])), tmp_path / "steps.csv", "steps")
    assert (tmp_path / "steps.csv").exists()


def test_in_a_trace_steps_follow_each_other_unless_all_are_stamped() -> None:
    at = pd.Timestamp("2026-01-01")
    rows = [metric("step_seconds", step, 2.0, at=at if step > 1 else None) for step in (1, 2, 3)]
    steps = timed(run_of(rows).steps)
    assert steps["begin"].tolist() == [0.0, 2.0, 4.0]


def test_in_the_trace_of_a_recording_steps_of_several_engines_keep_their_length(
    tmp_path: Path,
) -> None:
    """They overlap: one lane would cut the later one off where the earlier one ends."""
    writer = Writer.create(tmp_path, header())
    forward = writer.name("forward", 0, "compute")
    for step in range(1, 3):
        for engine, (begin, end) in enumerate(((0, 60), (50, 100))):
            at, until = ((100 * step + moment) * MS for moment in (begin, end))
            writer.span(forward, at, until, step, engine=engine)
            writer.step(step, at, until, CLASSES, engine=engine)
    writer.close()
    run = load(tmp_path)
    told = list(recorded(run, run.steps))
    lanes = {e["tid"]: e["args"]["name"] for e in told if e["name"] == "thread_name"}
    took = [(lanes[e["tid"]], round(e["dur"])) for e in told if e["name"] == "step 2"]
    assert took == [("rank 0, engine 0", 60_000), ("rank 0, engine 1", 50_000)]


def test_the_trace_of_a_recording_ends_with_the_phases_of_the_step_that_did_not_end(
    tmp_path: Path,
) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 2)
    writer.span(writer.name("forward", 0, "compute"), 300 * MS, 310 * MS, 3)
    writer.close()
    run = load(tmp_path)
    slices = [event for event in recorded(run, run.steps) if event["ph"] == "X"]
    assert slices[-1]["name"] == "forward"
    assert slices[-1]["ts"] == pytest.approx(200_000)  # since the first step began


def test_a_trace_file_is_what_perfetto_reads(sample_run: Sample, tmp_path: Path) -> None:
    export(sample_run(SEED), tmp_path / "run.perfetto.json")
    told = json.loads((tmp_path / "run.perfetto.json").read_text())
    assert {event["ph"] for event in told["traceEvents"]} == {"X", "C", "M"}
    assert "one after another" in told["otherData"]["note"]
    names = {e["args"]["name"] for e in told["traceEvents"] if e["ph"] == "M"}
    assert names == {"launch 1", "optimizer steps", "rank 0"}


def slices(run: Run) -> dict[tuple[int, str], list[tuple[float, float]]]:
    """Begin and end in ms by rank and name."""
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    told = list(recorded(run, run.steps))
    lanes = {e["tid"]: e["args"]["name"] for e in told if e["name"] == "thread_name"}
    for one in told:
        if one["ph"] == "X":
            rank = int(lanes[one["tid"]].removeprefix("rank "))
            span = one["ts"] / 1e3, (one["ts"] + one["dur"]) / 1e3
            found.setdefault((rank, one["name"]), []).append(span)
    return found


def test_in_the_trace_of_a_recording_phases_and_waits_stand_where_they_were(tmp_path: Path) -> None:
    run = load(record_pauses(tmp_path, {}, {"forward": 20}, inner=2, steps=3))
    told = slices(run)
    assert told[0, "step 1"] == [pytest.approx((0, 58), abs=0.1)]
    assert told[0, "backward"][0] == pytest.approx((12, 32), abs=0.1)
    assert told[0, "all_reduce"][0] == pytest.approx((38, 58), abs=0.1)
    assert told[1, "backward"][0] == pytest.approx((32, 52), abs=0.1)
    assert (1, "all_reduce") not in told
    outer, inner = told[0, "step"][2], told[0, "optimizer_step"][2]
    assert outer[0] == inner[0] == pytest.approx(148, abs=0.1)
    assert inner[1] < outer[1]


def test_a_recording_without_a_rank_has_a_lane_of_its_own(tmp_path: Path) -> None:
    record(tmp_path, 2)
    writer = Writer.create(tmp_path, {"host": "worker-1"})
    write_steps(writer, 1, 2)
    writer.close()
    told = list(recorded(run := load(tmp_path), run.steps))
    lanes = {e["tid"]: e["args"]["name"] for e in told if e["name"] == "thread_name"}
    assert sorted(lanes.values()) == ["rank 0", "rank unknown"]
    assert [lanes[e["tid"]] for e in told if e["name"] == "step 1"] == ["rank unknown", "rank 0"]


def test_a_call_is_under_way_from_its_issue_to_the_end_of_its_wait(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 2)
    writer.close()
    told = list(recorded(run := load(tmp_path), run.steps))
    begins, ends = ([e["ts"] / 1e3 for e in told if e["ph"] == ph] for ph in "be")
    assert begins == pytest.approx([12, 52, 112, 152])
    assert ends == pytest.approx([30, 70, 130, 170])
    losses = [(e["ts"] / 1e3, e["args"]["loss"]) for e in told if e["name"] == "loss"]
    assert losses == [(pytest.approx(100), 1.0), (pytest.approx(200), 0.5)]
    assert {e["args"]["name"] for e in told if e["ph"] == "M"} == {"launch 1", "rank 0"}


def test_a_call_of_unknown_length_is_no_slice(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 2)
    writer.collective(writer.name("send"), 0, 150 * MS, 160 * MS, -1, 1)
    writer.close()
    run = load(tmp_path)
    export(run, tmp_path / "run.perfetto.json")
    told = json.loads((tmp_path / "run.perfetto.json").read_text())["traceEvents"]
    assert {event["ph"] for event in told if event["name"].startswith("send")} == {"b", "e"}


def test_slices_of_a_lane_lie_within_each_other(tmp_path: Path) -> None:
    """A wait may be measured a little longer than the phase that it blocks."""
    writer = Writer.create(tmp_path, header())
    backward = writer.name("backward", 0, "compute")
    writer.span(backward, 10 * MS, 30 * MS, 1)
    writer.collective(writer.name("all_reduce", backward), 0, 20 * MS, 20 * MS, 15 * MS, 1)
    writer.step(1, 0, 40 * MS)
    writer.close()
    told = slices(load(tmp_path))
    assert told[0, "all_reduce"] == [pytest.approx((20, 30))]


def test_a_long_recording_is_written_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / "runs", 40)
    run = load(tmp_path / "runs")
    whole = list(recorded(run, run.steps))
    monkeypatch.setattr("dsprof.export.timeline._AT_ONCE", 30)
    assert sorted(map(json.dumps, recorded(run, run.steps))) == sorted(map(json.dumps, whole))
    export(run, tmp_path / "run.perfetto.json")
    told = json.loads((tmp_path / "run.perfetto.json").read_text())
    assert told["traceEvents"] == list(recorded(run, run.steps))
    assert "by the clock of the first host" in told["otherData"]["note"]


@pytest.mark.parametrize("name", ["run.perfetto.json", "run.jsonl"])
def test_only_some_steps_are_written_if_they_are_asked_for(
    cli: Dsprof, tmp_path: Path, name: str
) -> None:
    record(tmp_path / "runs", 9)
    done = cli("export", "runs", "-o", name, "--table", "phases", "--steps", "3:5")
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / name).read_text()
    if name == "run.jsonl":
        told = {json.loads(line)["step"] for line in text.splitlines()}
    else:
        steps = (e["name"].split() for e in json.loads(text)["traceEvents"])
        told = {int(words[1]) for words in steps if words[0] == "step" and words[1:]}
    assert told == {3, 4, 5}


def test_a_table_without_steps_has_none_to_choose_from(sample_run: Sample, tmp_path: Path) -> None:
    with pytest.raises(DsprofError, match="has no steps to choose from"):
        export(sample_run(SEED), tmp_path / "repairs.csv", "repairs", (1, 2))


@pytest.mark.parametrize(("name", "table"), [("run.xlsx", "events"), ("run.csv", "dreams")])
def test_an_unknown_ending_or_table_is_refused(
    sample_run: Sample, tmp_path: Path, name: str, table: str
) -> None:
    with pytest.raises(DsprofError, match="one of"):
        export(sample_run(SEED), tmp_path / name, table)


def test_the_command_writes_the_file(cli: Dsprof, tmp_path: Path) -> None:
    done = cli("export", SAMPLES / f"{SEED}.log", "-o", "steps.csv", "--table", "steps")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len((tmp_path / "steps.csv").read_text().splitlines()) == 4


def test_the_command_says_where_it_cannot_write(cli: Dsprof) -> None:
    done = cli("export", SAMPLES / f"{SEED}.log", "-o", "no/such/folder/run.csv")
    assert done.returncode == 1
    assert done.stderr.startswith("dsprof: no/such/folder/run.csv: cannot be written")
