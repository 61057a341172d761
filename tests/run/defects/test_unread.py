"""Ends that are missing: of lines, of files. What they held is unknown, and the run says so."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from rich.console import Console

from dsprof.errors import DsprofError
from dsprof.run import Run, load
from dsprof.text.trust import repair_section
from tests.logs.reading import PFX, STEP, TIMERS

STAGE = PFX + b"Creating torch.bfloat16 ZeRO stage 1 optimizer\n"


def _text(steps: int) -> bytes:
    lines = (PFX + STEP % n + b"\n" + PFX + TIMERS + b"\n" for n in range(1, steps + 1))
    return STAGE + b"".join(lines)


def _run(folder: Path, text: bytes) -> Run:
    path = folder / "run.log"
    path.write_bytes(text)
    return load(path)


@pytest.mark.parametrize("lost", [2, 12, 30, 52, 62])
def test_timers_that_the_end_of_the_log_cut_off_are_unknown_and_not_zero(
    lost: int, tmp_path: Path
) -> None:
    steps = _run(tmp_path, _text(6)[:-lost]).steps
    whole = _run(tmp_path, _text(6)).steps
    columns = ["seconds", "communication", "compute", "optimizer"]
    assert steps[columns].head(5).equals(whole[columns].head(5))
    assert steps[columns].iloc[5:].isna().all().all()


def test_a_log_that_only_lacks_its_last_line_end_is_read_whole(tmp_path: Path) -> None:
    run = _run(tmp_path, _text(6)[:-1])
    assert run.steps["communication"].notna().all()
    assert "cut-short" not in set(run.repairs["name"])


def test_a_line_that_lost_its_end_is_told_with_its_place(tmp_path: Path) -> None:
    run = _run(tmp_path, _text(6)[:-12])
    (row,) = run.repairs[run.repairs["name"] == "cut-short"].to_dict("records")
    assert (row["line"], row["rows"]) == (13, 4)


OPTIMIZER = (
    b"time (ms) | optimizer_allgather: 0.40 | optimizer_gradients: 0.10 | optimizer_step: 0.50"
)


def _of_step(step: int, *, optimizer: bool = True) -> bytes:
    inside = [PFX + OPTIMIZER] if optimizer else []
    return b"\n".join([*inside, PFX + STEP % step, PFX + TIMERS, b""])


def test_a_first_step_whose_lines_lie_before_the_log_is_no_whole_step(tmp_path: Path) -> None:
    run = _run(tmp_path, _of_step(7, optimizer=False) + b"".join(map(_of_step, range(8, 12))))
    assert run.steps["communication"].isna().tolist() == [True, False, False, False, False]
    (row,) = run.repairs[run.repairs["name"] == "cut-head"].to_dict("records")
    assert (row["kind"], row["line"], row["rows"]) == ("repair", 2, 5)
    assert "optimizer_allgather" in row["text"]


def test_a_first_step_that_holds_what_all_later_ones_do_is_whole(tmp_path: Path) -> None:
    skipped = _of_step(9, optimizer=False).replace(b"step: 1.25", b"step: 0.25")
    later = [_of_step(8), skipped, _of_step(10)]
    run = _run(tmp_path, _of_step(7, optimizer=False) + b"".join(later))
    assert run.steps["communication"].notna().all()
    assert "cut-head" not in set(run.repairs["name"])


def test_a_first_step_with_lines_of_the_launch_before_it_is_whole(tmp_path: Path) -> None:
    steps = _of_step(1, optimizer=False) + b"".join(map(_of_step, range(2, 6)))
    run = _run(tmp_path, STAGE + steps)
    assert run.steps["communication"].notna().all()
    assert "cut-head" not in set(run.repairs["name"])


def test_a_window_whose_steps_were_all_skipped_lacks_none_of_its_timers(tmp_path: Path) -> None:
    line = b" iteration %d/ 100 | elapsed time per iteration (ms): 900.0 | loss scale: 1024.0 |\n"
    timers = b"time (ms) | forward-compute: 300.00 | backward-compute: 500.00 | optimizer: 90.00"
    steps = [line % 10 + timers, *(line % n + timers + INNER for n in (20, 30, 40))]
    run = _run(tmp_path, b"\n".join([*steps, b""]))
    assert run.steps["optimizer"].tolist() == pytest.approx([0.09] * 4)
    assert run.repairs.empty


INNER = b" | optimizer-inner-step: 40.00"
PIPELINE = b"steps: %d loss: 4.6 iter time (s): 0.994 samples/sec: 257.6\n"
P2P = PFX + b"rank=0 time (ms) | pipe_send_output: 41.71 | pipe_recv_grad: 1725.64\n"
MICRO = (
    PFX + b"rank=0 time (ms) | batch_input: 9.0 | forward_microstep: 2785.8 | "
    b"backward_microstep: 5153.2 | step_microstep: 12.5\n"
)


def test_an_excerpt_between_two_prints_of_a_pipeline_holds_no_whole_step(tmp_path: Path) -> None:
    run = _run(tmp_path, PIPELINE % 20 + P2P + PFX + STEP % 30 + b"\n" + MICRO)
    first = run.steps.iloc[0]
    assert first["seconds"] == 0.994
    assert first[["wait", "compute", "other"]].isna().all()
    assert "cut-head" in set(run.repairs["name"])
    why = "the log begins within the only step whose timers it shows"
    assert run.findings[0].title == f"A step takes 994 ms; where that goes is unknown: {why}"
    assert [advice.setting for advice in run.findings[0].advice] == ["dsprof attach"]


def test_a_turn_behind_the_times_of_the_one_before_it_is_whole(tmp_path: Path) -> None:
    text = (
        b"|E2E latency=4.78s |Gather latency=0.00s (0.00%) |Generate time=1.74s (36.40%) "
        b"|Training time=2.82s (59.00%) |Others=0.22 (4.60%)|CurSamplesPerSec=0.84 "
        b"|AvgSamplesPerSec=1.03\nEpoch: 0 | Step: 8 | PPO Epoch: 1 | Actor Loss: 0.01 | "
        b"Critic Loss: 0.02 | Unsupervised Loss: 0.0\nEnd-to-End => Latency: 2.55s, TFLOPs: 3.25, "
        b"Samples/sec: 1.57, Time/seq 0.64s, Batch Size: 4, Total Seq. Length: 512\n"
        b"Generation => Latency: 1.77s, Per-token Latency 6.92 ms, TFLOPs: 0.85, "
        b"BW: 112.00 GB/sec, Answer Seq. Length: 256\nTraining   => Latency: 0.78s, TFLOPs: 8.85\n"
    )
    run = _run(tmp_path, text)
    phases = run.phases.set_index("name")["seconds"]
    assert phases[["generate", "train"]].tolist() == [1.77, 0.78]
    assert "cut-head" not in set(run.repairs["name"])


def test_a_source_that_could_not_be_read_to_its_end_is_a_doubt(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes(_text(6))
    packed = gzip.compress(_text(3000))
    (tmp_path / "worker-2.log.gz").write_bytes(packed[: len(packed) // 2])
    run = load(tmp_path)
    (row,) = run.repairs[run.repairs["name"] == "not-read"].to_dict("records")
    assert row["kind"] == "doubt"
    assert row["source"].endswith("worker-2.log.gz")
    assert row["line"] > 1000
    assert "the archive is cut short" in row["text"]
    assert row["text"].endswith("fetch it again, whole")
    assert set(run.events["source"].dropna().astype(str)) == set(run.meta["sources"])


def test_an_archive_that_is_cut_before_its_first_metric_is_said_to_be_cut(tmp_path: Path) -> None:
    path = tmp_path / "run.log.gz"
    noise = bytes(10 + byte % 97 + byte % 7 for byte in range(9999))
    packed = gzip.compress(noise + b"\n" + _text(50), compresslevel=0)
    path.write_bytes(packed[:9000])
    with pytest.raises(DsprofError) as told:
        load(path)
    assert told.value.where == str(path)
    assert "the archive is cut short" in told.value.what
    assert "whole" in told.value.todo


def test_an_archive_of_which_nothing_can_be_unpacked_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "run.log.gz"
    path.write_bytes(gzip.compress(_text(50))[:20])
    with pytest.raises(DsprofError, match="fetch it again, whole"):
        load(path)


def test_the_terminal_shows_the_doubt(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes(_text(6))
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(_text(2))[:20])
    console = Console(file=io.StringIO(), width=100)
    console.print(*repair_section(load(tmp_path).repairs))
    said = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "doubted not-read" in said
    assert "cannot be read beyond byte 0: the archive is cut short" in said
