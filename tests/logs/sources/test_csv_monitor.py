"""DeepSpeed's csv monitor as an input."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof import logs
from dsprof.errors import DsprofError


def _write(folder: Path, name: str, rows: list[tuple[int, float]]) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"Train_Samples_{name}.csv"
    text = "".join(f"{count},{value}\n" for count, value in rows)
    file.write_text(f"step,{name}\n{text}")
    return file


def _events(path: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = logs.read([path]).events.to_pylist()
    return rows


def test_a_count_of_samples_becomes_an_optimizer_step(tmp_path: Path) -> None:
    _write(tmp_path / "job", "lr", [(64, 0.1), (128, 0.2), (192, 0.3)])
    found = [(e["step"], e["value"]) for e in _events(tmp_path) if e["name"] == "lr"]
    assert found == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_timers_are_phases_in_seconds_under_their_canonical_names(tmp_path: Path) -> None:
    _write(tmp_path / "job", "elapsed_time_ms_backward_allreduce", [(8, 250.0), (16, 500.0)])
    phases = [e for e in _events(tmp_path) if e["kind"] == "phase"]
    assert [(e["name"], e["seconds"], e["timers"]) for e in phases] == [
        ("backward_allreduce", 0.25, "zero"),
        ("backward_allreduce", 0.5, "zero"),
    ]


def test_a_loss_that_is_written_one_batch_early_belongs_to_the_next_step(tmp_path: Path) -> None:
    _write(tmp_path / "job", "lr", [(32, 0.1), (64, 0.1)])
    _write(tmp_path / "job", "train_loss", [(0, 2.5), (32, 2.4)])
    found = [(e["step"], e["value"]) for e in _events(tmp_path) if e["name"] == "loss"]
    assert found == [(1, 2.5), (2, 2.4)]


def test_a_count_that_falls_back_opens_the_next_segment(tmp_path: Path) -> None:
    _write(tmp_path / "job", "lr", [(8, 1.0), (16, 2.0), (8, 3.0)])
    found = [(e["segment"], e["value"]) for e in _events(tmp_path) if e["name"] == "lr"]
    assert found == [(0, 1.0), (0, 2.0), (1, 3.0)]


def test_the_batch_size_is_what_the_counts_are_multiples_of(tmp_path: Path) -> None:
    _write(tmp_path / "job", "lr", [(96, 1.0), (144, 1.0), (240, 1.0)])
    sizes = [e["value"] for e in _events(tmp_path) if e["name"] == "train_batch_size"]
    assert sizes == [48.0]


def test_a_line_that_a_crash_cut_short_is_left_out(tmp_path: Path) -> None:
    file = _write(tmp_path / "job", "lr", [(8, 1.0), (16, 2.0)])
    file.write_text(file.read_text() + "24")
    assert [e["line"] for e in _events(tmp_path) if e["name"] == "lr"] == [2, 3]


@pytest.mark.parametrize("spoilt", ["24,3.", "24,3.5", "24,3.5\0\0"])
def test_a_last_number_that_may_go_on_is_left_out(spoilt: str, tmp_path: Path) -> None:
    file = _write(tmp_path / "job", "lr", [(8, 1.0), (16, 2.0)])
    file.write_text(file.read_text() + spoilt)
    assert [e["value"] for e in _events(tmp_path) if e["name"] == "lr"] == [1.0, 2.0]


@pytest.mark.parametrize(
    "odd",
    ["9" * 10_000 + ",1.0", "24," + "9" * 10_000, "24,1e9999", "9" * 21 + ",1", '"' * 200_000],
)
def test_numbers_without_measure_are_left_out(odd: str, tmp_path: Path) -> None:
    file = _write(tmp_path / "job", "lr", [(8, 1.0), (16, 2.0)])
    file.write_text(file.read_text() + f"{odd}\n\0\0" + "32,4.0\n")
    assert [e["value"] for e in _events(tmp_path) if e["name"] == "lr"] == [1.0, 2.0, 4.0]


def test_each_number_leads_to_its_file_and_line(tmp_path: Path) -> None:
    file = _write(tmp_path / "job", "loss_scale", [(8, 65536.0)])
    event = next(e for e in _events(tmp_path) if e["name"] == "loss_scale")
    assert (event["source"], event["line"]) == (str(file), 2)


def test_a_log_and_a_monitor_folder_are_read_as_one_run(tmp_path: Path) -> None:
    _write(tmp_path / "job", "lr", [(8, 1.0), (16, 2.0)])
    (tmp_path / "run.log").write_text(
        "steps: 2 loss: 1.5000 iter time (s): 0.250 samples/sec: 32.000\n"
    )
    log = logs.read([tmp_path])
    names = set(log.events["name"].to_pylist())
    assert {"lr", "step_seconds"} <= names


def test_a_folder_without_logs_says_so(tmp_path: Path) -> None:
    with pytest.raises(DsprofError, match="holds no logs"):
        logs.read([tmp_path])


def test_a_monitor_that_has_not_written_a_number_adds_none_to_the_log(tmp_path: Path) -> None:
    _write(tmp_path / "job", "lr", [])
    (tmp_path / "run.log").write_text("step=1, skipped=0, lr=[0.1], mom=[0.9]\n")
    assert logs.read([tmp_path]).events.equals(logs.read([tmp_path / "run.log"]).events)


def test_lines_of_the_monitor_are_counted_as_read(tmp_path: Path) -> None:
    _write(tmp_path / "job", "lr", [(64, 0.1), (128, 0.2)])
    _write(tmp_path / "job", "train_loss", [(64, 1.5)])
    coverage = logs.read([tmp_path]).coverage
    assert (coverage.lines, coverage.metric_lines, coverage.read_lines) == (5, 3, 3)
    assert coverage.bytes > 0


@pytest.mark.parametrize(("last", "batch"), [(280, 64), (6, 512)])
def test_a_monitor_of_another_last_step_or_batch_size_is_of_another_job(
    last: int, batch: int, tmp_path: Path
) -> None:
    log = tmp_path / "run.log"
    rate = "loss: 1.5000 iter time (s): 0.250 samples/sec: 32.000"
    log.write_text(
        f"[INFO] [config.py:1:print]   train_batch_size ............. {batch}\n"
        + "".join(f"steps: {step} {rate}\n" for step in (last - 4, last - 2, last))
    )
    _write(tmp_path / "job", "lr", [(64 * step, 1.0) for step in range(1, 8)])
    found = logs.read([tmp_path])
    assert [*map(set, found.meta["jobs"])] == [
        {str(log)},
        {str(tmp_path / "job" / "Train_Samples_lr.csv")},
    ]
    assert "csv monitor" in found.meta["jobs_differ"]
    assert set(found.events["source"].to_pylist()) == {str(log)}


def test_of_several_monitors_the_one_that_ends_as_the_log_is_read(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(
        "".join(f"steps: {n} loss: 1.5 iter time (s): 0.25 samples/sec: 32.0\n" for n in (2, 4, 6))
    )
    own = _write(tmp_path / "a", "lr", [(64 * step, 1.0) for step in range(1, 8)])
    other = _write(tmp_path / "b", "lr", [(64 * step, 2.0) for step in range(1, 90)])
    assert logs.read([tmp_path]).meta["jobs"] == (
        (str(tmp_path / "run.log"), str(own)),
        (str(other),),
    )


def test_beside_the_log_of_one_launch_the_monitor_tells_of_no_other(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(
        "".join(f"steps: {n} loss: 1.5 iter time (s): 0.25 samples/sec: 32.0\n" for n in (1, 2, 3))
    )
    launches = [
        (step, float(launch)) for launch, end in enumerate((9, 3, 6)) for step in range(1, end + 1)
    ]
    _write(tmp_path / "job", "lr", [(64 * step, value) for step, value in launches])
    told = [event for event in _events(tmp_path) if event["name"] == "lr"]
    assert [(e["segment"], e["step"], e["value"]) for e in told] == [(0, n, 1.0) for n in (1, 2, 3)]
