"""Samples of GPUs, sampled by one rank of a node, as the view that names who uses them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from dsprof.recording import Unit, Writer
from dsprof.run import Run, load
from tests.recording.recorded import header, write_steps

MS = 1_000_000


def record(folder: Path, rank: int, uuid: str | None, sampled: dict[str, float]) -> None:
    """A rank that runs on the GPU `uuid`, and samples temperatures of all in `sampled`."""
    writer = Writer.create(folder, header(rank))
    if uuid:
        writer.config("gpu", uuid)
    writer.config("gpu_memory_bytes", 141 << 30)
    write_steps(writer, 1, 3)
    for gpu, degrees in sampled.items():
        writer.gpu(writer.name("temperature"), degrees, 3, 0, writer.name(gpu), 350 * MS)
        used = writer.name("memory_used")
        writer.gpu(used, 5 << 30, 3, int(Unit.BYTES), writer.name(gpu), 350 * MS)
        own = writer.name("memory_process", writer.name("pid 4242"))
        writer.gpu(own, 4 << 30, 3, int(Unit.BYTES), writer.name(gpu), 350 * MS)
    writer.close()


def run_of(tmp_path: Path, *uuids: str | None) -> Run:
    """Rank 0 samples three GPUs."""
    for rank, uuid in enumerate(uuids):
        sampled = {"GPU-a": 50.0, "GPU-b": 60.0, "GPU-c": 70.0} if rank == 0 else {}
        record(tmp_path, rank, uuid, sampled)
    return load(tmp_path)


def temperatures(gpu: pd.DataFrame) -> list[tuple[str, int | None, float]]:
    rows = gpu[gpu["name"] == "temperature"]
    ranks = [None if pd.isna(rank) else int(rank) for rank in rows["rank"]]
    return sorted(zip(rows["text"].astype(str), ranks, rows["value"], strict=True), key=str)


def test_a_gpu_is_that_of_the_rank_that_named_it_not_of_the_one_that_sampled(
    tmp_path: Path,
) -> None:
    run = run_of(tmp_path, "GPU-b", "GPU-a")
    assert temperatures(run.gpu) == [("GPU-a", 1, 50), ("GPU-b", 0, 60), ("GPU-c", None, 70)]
    assert set(run.gpu["host"].astype(str)) == {"worker-1"}


def test_a_gpu_that_two_ranks_share_is_told_for_both(tmp_path: Path) -> None:
    found = temperatures(run_of(tmp_path, "GPU-a", "GPU-a").gpu)
    assert found[:2] == [("GPU-a", 0, 50), ("GPU-a", 1, 50)]
    assert len(found) == 4


def test_without_a_name_nobody_is_guessed(tmp_path: Path) -> None:
    assert {rank for _, rank, _ in temperatures(run_of(tmp_path, None, None).gpu)} == {None}


def test_memory_by_process_has_its_own_name_and_says_which(tmp_path: Path) -> None:
    rows = run_of(tmp_path, "GPU-a").gpu
    own = rows[rows["name"] == "memory_process"]
    assert set(own["raw"].astype(str)) == {"pid 4242/memory_process"}
    assert set(own["bytes"]) == {float(4 << 30)}


def test_the_size_of_a_gpu_is_known_to_whoever_judges_memory(tmp_path: Path) -> None:
    assert run_of(tmp_path, "GPU-a").meta["gpu_memory_bytes"] == 141 << 30


def test_host_time_of_a_rank_on_a_gpu_is_doubted(tmp_path: Path) -> None:
    """It attached before the process used its GPU."""
    for rank, clock in enumerate(("gpu", "host")):
        writer = Writer.create(tmp_path, header(rank))
        writer.config("phases_on", clock)
        write_steps(writer, 1, 3)
        writer.config("gpu", f"GPU-{rank}")
        writer.close()
    run = load(tmp_path)
    (doubt,) = run.repairs[run.repairs["name"] == "host-time-on-gpu"].to_dict("records")
    assert doubt["kind"] == "doubt"
    assert "rank-00001" in str(doubt["source"])
    assert "untrustworthy-timers" in {finding.rule for finding in run.findings}


def test_host_time_of_a_rank_on_a_cpu_is_not(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header(0))
    writer.config("phases_on", "host")
    write_steps(writer, 1, 3)
    writer.close()
    assert load(tmp_path).repairs.empty
