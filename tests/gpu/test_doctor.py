"""`dsprof doctor` on machines with and without GPUs."""

from __future__ import annotations

from pathlib import Path

import dsprof
from dsprof import doctor
from tests.gpu.fake import Fake


def told() -> str:
    (check,) = [check for check in doctor.checks() if check.name == "GPUs"]
    assert check.fine
    return check.told


def test_gpus_are_named_by_model() -> None:
    node = Fake(3)
    node.model(1, "Tesla T4")
    assert told() == "2 x NVIDIA H200, 1 x Tesla T4, counters in recordings"


def test_without_a_driver_it_says_what_a_recording_lacks() -> None:
    Fake(error=9)
    assert told().startswith("no counters in recordings: NVML: Driver Not Loaded")


def test_a_driver_without_gpus_is_told() -> None:
    Fake(0)
    assert told() == "none"


def test_torch_is_not_missed_where_nothing_is_trained() -> None:
    Fake(0)
    lines = [f"{check.name} {check.told}" for check in doctor.checks()]
    assert not any("torch" in line for line in lines)
    (recording,) = [line for line in lines if line.startswith("recording ")]
    assert "in any environment" in recording
    assert recording.endswith(str(Path(dsprof.__file__).parent))
