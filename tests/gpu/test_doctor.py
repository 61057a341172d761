"""`dsprof doctor` on machines with and without GPUs."""

from __future__ import annotations

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
    assert told() == "none, counters in recordings"
