"""Steps that the throughput timer alone numbers: counted from the launch, and said so."""

from __future__ import annotations

import pytest

from dsprof.run import Run, from_events
from tests.logs.reading import read

LINE = (
    "[2024-02-01 10:{at:02}:00,000] [INFO] [timer.py:199:stop] epoch=0/micro_step={micro}/"
    "global_step={step}, RunningAvgSamplesPerSec=8.0, CurrSamplesPerSec=8.5, MemAllocated=1.5GB, "
    "MaxMemAllocated=3.25GB\n"
)
STEP = "[2024-02-01 10:01:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=510, skipped=0\n"


def run_of(text: str) -> Run:
    read_ = read(text.encode())
    return from_events(read_.events.to_pandas())


def lines(*steps: int) -> str:
    return "".join(LINE.format(at=at, micro=2 * n, step=n) for at, n in enumerate(steps))


def names(run: Run) -> list[str]:
    return run.repairs["name"].tolist()


def test_steps_that_only_throughput_lines_number_are_counted_from_the_launch() -> None:
    run = run_of(lines(10, 20, 40))
    assert run.steps["step"].tolist() == [10, 20, 40]
    assert run.steps["seconds"].dropna().tolist() == pytest.approx([6.0, 3.0])
    assert run.steps["samples_per_second"].tolist() == [8.5] * 3
    assert "steps-from-launch" in names(run)
    assert "counted from the launch" in " ".join(run.repairs["text"])
    assert set(run.memory["step"].dropna()) == {10, 20, 40}


def test_counts_of_the_launch_are_not_mixed_with_steps_of_the_checkpoint() -> None:
    run = run_of(lines(10) + STEP + lines(20))
    assert run.steps["step"].tolist() == [510]
    assert "steps-from-launch" not in names(run)


def test_counts_that_do_not_rise_are_of_several_engines() -> None:
    assert run_of(lines(10, 10, 20, 20)).steps.empty
