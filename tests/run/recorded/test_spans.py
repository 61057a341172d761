"""Recordings as runs: phases by path, collectives where they blocked, mixed with logs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import dsprof
from dsprof.errors import DsprofError
from dsprof.events import Class
from dsprof.recording import ASYNC, Writer
from dsprof.run import Run, from_events, load
from tests.recording.recorded import CLASSES, MS, header, record, write_steps

LOG = (
    "[2026-11-21 05:52:04,231] [INFO] [logging.py:123:log_dist] [Rank 0] step=2, skipped=0, "
    "lr=[0.001], mom=[(0.9, 0.999)]\n"
    "[2026-11-21 05:52:04,232] [INFO] [logging.py:123:log_dist] [Rank 0] time (ms) | fwd: 500.00 "
    "| bwd: 400.00 | bwd_inner: 300.00 | bwd_allreduce: 100.00 | step: 50.00\n"
)


def phase_row(run: Run, name: str, step: int = 1, rank: int = 0) -> pd.Series:
    found = run.phases
    mine = (found["name"] == name) & (found["step"] == step) & (found["rank"] == rank)
    assert mine.sum() == 1
    return found[mine].iloc[0]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Three steps of 100 ms on two ranks: forward 20, backward 50 (20 blocked), step 10."""
    for rank in (0, 1):
        record(tmp_path, 3, rank, config={"zero_stage": 3, "gradient_accumulation_steps": 2})
    return load(tmp_path)


def test_spans_of_all_micro_batches_make_the_phase_of_one_step(run: Run) -> None:
    forward = phase_row(run, "forward")
    assert forward["seconds"] == pytest.approx(0.020)
    assert forward["count"] == 2
    step = phase_row(run, "step", 3, 1)
    assert (step["seconds"], step["count"]) == (pytest.approx(0.010), 2)


def test_the_time_blocked_in_a_collective_lies_in_the_phase_that_it_blocked(run: Run) -> None:
    backward = phase_row(run, "backward")
    assert backward["seconds"] == pytest.approx(0.050)
    assert backward["self_seconds"] == pytest.approx(0.030)
    reduce = phase_row(run, "all_reduce_in_backward")
    assert (reduce["parent"], reduce["class"]) == ("backward", "communication")
    assert reduce["seconds"] == reduce["self_seconds"] == pytest.approx(0.020)
    assert reduce["raw"] == "backward/all_reduce"


def test_phases_nest_and_classes_add_up_to_the_step(run: Run) -> None:
    covered = run.phases.groupby(["step", "rank"])["self_seconds"].sum()
    assert covered.to_numpy() == pytest.approx([0.080] * 6)
    steps = run.steps
    assert steps["seconds"].to_numpy() == pytest.approx([0.100] * 3)
    classes = steps[[str(word) for word in Class]]
    assert classes.sum(axis=1).to_numpy() == pytest.approx([0.100] * 3)
    assert steps["compute"].to_numpy() == pytest.approx([0.050] * 3)
    assert steps["optimizer"].to_numpy() == pytest.approx([0.010] * 3)


def test_under_zero_3_communication_is_known_from_a_recording(run: Run) -> None:
    assert run.config["zero_stage"] == 3
    assert run.steps["communication"].to_numpy() == pytest.approx([0.020] * 3)
    assert run.steps["communication_share"].to_numpy() == pytest.approx([0.2] * 3)
    assert set(run.steps["bound"]) == {"compute"}
    assert len(run.repairs) == 0


def test_collectives_keep_group_size_and_exposed_time(run: Run) -> None:
    comm = run.comm
    assert len(comm) == 12
    assert set(comm["op"]) == {"all_reduce"}
    assert set(comm["group"]) == {"world ranks 0-1"}
    assert set(comm["phase"]) == {"backward"}
    assert comm["exposed_seconds"].to_numpy() == pytest.approx([0.010] * 12)
    assert comm["seconds"].isna().all()
    assert not comm["total"].any()


def test_what_the_job_is_comes_from_the_header(run: Run) -> None:
    assert run.meta["world_size"] == 2
    assert run.meta["hosts"] == ["worker-1"]
    assert [told["ended"] for told in run.meta["recordings"]] == [True, True]
    assert run.coverage is None
    assert run.steps["loss"].to_numpy() == pytest.approx([1, 1 / 2, 1 / 3])


def test_the_step_under_way_does_not_count(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 2)
    writer.span(writer.name("forward"), 0, 9 * MS, 3)
    writer.flush()
    run = load(tmp_path)
    assert list(run.steps["step"]) == [1, 2]
    assert run.phases["step"].max() == 2
    writer.close()


def nested(tmp_path: Path, *, blocked_ns: int = 4 * MS) -> Run:
    writer = Writer.create(tmp_path, header())
    forward = writer.name("forward", 0, "compute")
    fetch = writer.name("fetch", forward, "communication")
    gather = writer.name("all_gather", fetch)
    send = writer.name("send", forward)
    writer.span(fetch, 1 * MS, 6 * MS, 1)
    writer.collective(gather, 0, 1 * MS, 2 * MS, blocked_ns, 1, flags=ASYNC)
    writer.collective(send, 0, 7 * MS, 7 * MS, 2 * MS, 1)
    writer.span(forward, 0, 10 * MS, 1)
    writer.step(1, 0, 10 * MS)
    writer.close()
    return load(tmp_path)


def test_paths_nest_to_any_depth(tmp_path: Path) -> None:
    run = nested(tmp_path)
    found = run.phases.set_index("name")
    assert found["self_seconds"].round(6).to_dict() == {
        "forward": 0.003, "fetch": 0.001, "all_gather_in_fetch": 0.004, "send_in_forward": 0.002,
    }  # fmt: skip
    assert found["parent"].to_dict()["all_gather_in_fetch"] == "fetch"
    assert found["class"].to_dict() == {
        "forward": "compute", "fetch": "communication", "all_gather_in_fetch": "communication",
        "send_in_forward": "wait",
    }  # fmt: skip
    assert run.steps["wait"].iloc[0] == pytest.approx(0.002)
    assert run.steps["communication"].iloc[0] == pytest.approx(0.005)


def test_a_phase_whose_parent_was_not_recorded_lies_in_the_next_one_up(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    backward = writer.name("backward", 0, "compute")
    bucket = writer.name("bucket", backward)
    writer.collective(writer.name("all_reduce", bucket), 0, 0, 0, 3 * MS, 1)
    writer.span(backward, 0, 10 * MS, 1)
    writer.step(1, 0, 10 * MS)
    writer.close()
    run = load(tmp_path)
    assert phase_row(run, "all_reduce_in_bucket")["parent"] == "backward"
    assert phase_row(run, "backward")["self_seconds"] == pytest.approx(0.007)


def test_a_collective_outside_of_any_phase_is_one_of_its_own(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    writer.span(writer.name("forward", 0, "compute"), 0, 6 * MS, 1)
    writer.collective(writer.name("barrier"), 0, 6 * MS, 6 * MS, 3 * MS, 1)
    writer.step(1, 0, 10 * MS)
    writer.close()
    run = load(tmp_path)
    barrier = phase_row(run, "barrier")
    assert pd.isna(barrier["parent"])
    assert run.steps["communication"].iloc[0] == pytest.approx(0.003)


def test_where_exposure_is_unknown_nothing_is_called_compute(tmp_path: Path) -> None:
    """A stream waited, not the host: the backward holds both, unseparated."""
    writer = Writer.create(tmp_path, header())
    backward = writer.name("backward", 0, "compute")
    reduce = writer.name("all_reduce", backward)
    writer.span(writer.name("forward", 0, "compute"), 0, 4 * MS, 1)
    writer.span(backward, 4 * MS, 10 * MS, 1)
    writer.collective(reduce, 0, 4 * MS, 4 * MS, -1, 1)
    writer.collective(reduce, 0, 5 * MS, 5 * MS, 1 * MS, 1)
    writer.step(1, 0, 10 * MS)
    writer.close()
    run = load(tmp_path)
    assert set(run.phases["name"]) == {"forward", "backward"}
    step = run.steps.iloc[0]
    assert step["compute"] == pytest.approx(0.004)
    assert step["other"] == pytest.approx(0.006)
    assert pd.isna(step["communication"])
    assert pd.isna(step["communication_share"])
    assert step["bound"] == "unknown"


def test_little_communication_is_little_and_not_unknown(tmp_path: Path) -> None:
    run = nested(tmp_path, blocked_ns=1000)
    assert run.steps["communication"].iloc[0] == pytest.approx(0.005)
    writer = Writer.create(tmp_path / "two", header())
    writer.span(writer.name("forward", 0, "compute"), 0, 100 * MS, 1)
    writer.collective(writer.name("all_reduce"), 0, 0, 0, 20_000, 1)  # 0.02 %
    writer.step(1, 0, 101 * MS)
    writer.close()
    assert load(tmp_path / "two").steps["communication"].iloc[0] == pytest.approx(20e-6)


def test_steps_whose_spans_are_forgotten_keep_their_classes(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header(), keep_bytes=64 << 10)
    write_steps(writer, 1, 500)
    writer.close()
    run = load(tmp_path)
    assert list(run.steps["step"]) == list(range(1, 501))
    first, last = run.steps.iloc[0], run.steps.iloc[-1]
    for word, seconds in zip(Class, CLASSES, strict=True):
        assert first[str(word)] == pytest.approx(seconds, abs=1e-6), word
    for word in (Class.COMPUTE, Class.COMMUNICATION, Class.OPTIMIZER):
        assert last[str(word)] == pytest.approx(first[str(word)])
    assert len(run.repairs) == 0  # zeros are measured here, not a logger's defect


def test_a_recording_and_the_log_of_its_run_are_one_run(tmp_path: Path) -> None:
    record(tmp_path, 3)
    (tmp_path / "train.log").write_text(LOG)
    run = load(tmp_path)
    assert run.coverage is not None
    assert set(run.phases["name"]) == {"forward", "backward", "step", "all_reduce_in_backward"}
    second = run.steps.set_index("step").loc[2]
    assert second["lr"] == 0.001
    assert second["loss"] == 0.5
    assert second["compute"] == pytest.approx(0.050)
    assert run.events["record"].nunique() == len(
        run.events.drop_duplicates(["source", "line", "record"])
    )
    assert len(run.meta["sources"]) == 2


def test_files_folders_and_patterns_name_recordings(tmp_path: Path) -> None:
    path = record(tmp_path / "run", 2)
    for name in (path, tmp_path, str(tmp_path / "run" / "*.dsprof")):
        assert len(load(name).steps) == 2
    log = tmp_path / "x.log"
    log.write_text(LOG)
    assert len(load([path, log]).steps) == 2


def test_a_second_launch_into_the_same_folder_is_the_next_segment(tmp_path: Path) -> None:
    record(tmp_path, 2)
    record(tmp_path, 3)
    run = load(tmp_path)
    assert run.steps.groupby("segment").size().to_dict() == {0: 2, 1: 3}


def test_a_folder_in_which_nothing_is_recorded_yet_says_so(tmp_path: Path) -> None:
    (tmp_path / "rank-00000.1.dsprof").write_bytes(b"")
    with pytest.raises(DsprofError, match="nothing is recorded yet"):
        load(tmp_path)


def test_problems_and_memory_are_views_of_a_recording_too(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 2)
    writer.memory(writer.name("allocated"), 3e9, 2)
    writer.problem("oom", "CUDA out of memory", 2)
    writer.close()
    run = dsprof.load(tmp_path)
    assert run.memory[["name", "bytes", "step"]].to_numpy().tolist() == [["allocated", 3e9, 2]]
    problem = run.problems.iloc[0]
    assert (problem["kind"], problem["root_cause"]) == ("oom", True)
    assert run.findings[0].rule == "oom"


def test_hand_made_comm_rows_without_recorded_phases_stay_collectives(tmp_path: Path) -> None:
    del tmp_path
    rows = pd.DataFrame(
        {"kind": ["comm"], "name": ["all_reduce"], "step": [1], "value": [0.5], "seconds": [0.6]}
    )
    assert len(from_events(rows).phases) == 0


def on_gpu(folder: Path, rank: int, known: int, **more: int) -> None:
    """Four steps whose host time is 1 ms a phase; the device's time of `known` of them is told.

    On the device a forward takes 30 ms, a backward 60 ms of which 12 ms are blocked.
    """
    writer = Writer.create(folder, header(rank), **more)
    writer.config("phases_on", "gpu")
    backward = writer.name("backward", 0, "compute")
    names = {writer.name("forward", 0, "compute"): 30 * MS, backward: 60 * MS}
    reduce = writer.name("all_reduce", backward)
    for step in range(1, 5):
        at, told = step * 100 * MS, step <= known
        for name, length in names.items():
            writer.span(name, at, at + MS, step, 0, length if told else -1)
        writer.collective(reduce, 0, at, at, 12 * MS if told else -1, step)
        classes = [0.078, 0.012, 0, 0, 0, 0, 0, 0.010] if told else [float("nan")] * 8
        writer.step(step, at, at + 100 * MS, classes)
        writer.flush()
    writer.close()


def test_on_a_gpu_phases_are_the_time_of_its_stream(tmp_path: Path) -> None:
    on_gpu(tmp_path, 0, 4)
    run = load(tmp_path)
    assert phase_row(run, "forward")["seconds"] == pytest.approx(0.030)
    assert phase_row(run, "backward")["self_seconds"] == pytest.approx(0.048)
    assert run.steps["compute"].to_numpy() == pytest.approx([0.078] * 4)
    assert run.steps["communication"].to_numpy() == pytest.approx([0.012] * 4)
    assert run.meta["phases_on"] == "gpu"


def test_a_step_whose_device_time_is_lost_has_no_phases_instead_of_the_host_s(
    tmp_path: Path,
) -> None:
    on_gpu(tmp_path, 0, 3)
    run = load(tmp_path)
    assert sorted(run.phases["step"].unique()) == [1, 2, 3]
    assert run.steps["compute"].isna().tolist() == [False, False, False, True]
    assert not run.phases["mixed"].any()


def test_beside_a_gpu_a_rank_on_the_host_keeps_the_host_s_time(tmp_path: Path) -> None:
    on_gpu(tmp_path, 0, 4)
    record(tmp_path, 4, 1)
    run = load(tmp_path)
    assert phase_row(run, "forward", rank=0)["seconds"] == pytest.approx(0.030)
    assert phase_row(run, "forward", rank=1)["seconds"] == pytest.approx(0.020)


def test_forgotten_parts_of_a_gpu_s_recording_keep_their_classes(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header(0), keep_bytes=8 * 4096)
    writer.config("phases_on", "gpu")
    forward = writer.name("forward", 0, "compute")
    for step in range(1, 201):
        at = step * 100 * MS
        for _ in range(8):
            writer.span(forward, at, at + MS, step, 0, 10 * MS)
        writer.step(step, at, at + 100 * MS, [0.08, 0, 0, 0, 0, 0, 0, 0.02])
        writer.flush()
    writer.close()
    assert len(list(tmp_path.glob("*.kept.dsprof"))) == 1
    run = load(tmp_path)
    assert run.steps["compute"].to_numpy() == pytest.approx([0.08] * 200)
