"""Counters through the real pynvml, from a library whose GPUs are planted."""

from __future__ import annotations

import pynvml
import pytest

from dsprof import gpu
from dsprof.errors import DsprofError
from dsprof.events import GPU
from dsprof.gpu.nvml import COUNTERS
from tests.gpu.fake import WHOLE, Fake, Key

SECOND = 1_000_000_000


def values(board: gpu.Board, at: int = SECOND) -> dict[str, float]:
    return {sample.name: sample.value for sample in board.sample(at)}


def test_a_gpu_that_answers_everything_is_told_in_canonical_names_and_units() -> None:
    fake = Fake()
    fake.plant(0, WHOLE)
    (board,) = gpu.boards()
    board.sample(SECOND)
    fake.plant(0, WHOLE | {138: 3000, 139: 2000, 197: 5_500_000, 198: 7_000_001})
    found = values(board, 3 * SECOND)
    assert found == {
        "memory_used": float(60 << 30),
        "memory_total": float(141 << 30),
        "memory_process": float(58 << 30),
        "utilization": 97,
        "memory_utilization": 41,
        "power": 655.25,
        "temperature": 63,
        "temperature_memory": 71,
        "clock_sm": 1980,
        "clock_memory": 3201,
        "throttled_power": 0,
        "throttled_thermal": 0,
        "throttled_hardware": 0,
        "nvlink_sent": 2000 * 1024 / 2,
        "nvlink_received": 0,
        "pcie_sent": 250_000,
        "pcie_received": 0.5,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
    }
    assert set(found) == set(GPU)


def test_a_pynvml_that_gives_names_as_bytes_names_the_same_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As 11.4 and older ones do."""
    Fake().plant(0, WHOLE)
    (known,) = gpu.boards()
    for name in ("nvmlDeviceGetName", "nvmlDeviceGetUUID"):
        told = getattr(pynvml, name)
        monkeypatch.setattr(pynvml, name, lambda handle, told=told: told(handle).encode())
    (board,) = gpu.boards()
    assert (board.uuid, board.model) == (known.uuid, known.model)
    assert {sample.gpu for sample in board.sample(SECOND)} == {known.uuid}


def test_what_a_gpu_does_not_support_is_unknown_and_asked_for_once() -> None:
    fake = Fake()
    fake.plant(0, {Key.TEMPERATURE: 50})
    (board,) = gpu.boards()
    assert values(board) == {"temperature": 50}
    before = fake.asked(Key.POWER)
    assert values(board) == {"temperature": 50}
    assert fake.asked(Key.POWER) == before == 1


@pytest.mark.parametrize("missing", sorted(set(WHOLE) - {Key.PROCESS_MEMORY}))
def test_each_counter_may_be_missing_without_the_others(missing: int) -> None:
    fake = Fake()
    fake.plant(0, {key: value for key, value in WHOLE.items() if key != missing})
    (board,) = gpu.boards()
    board.sample(SECOND)
    lost = set(GPU) - set(values(board, 2 * SECOND))
    pairs = {
        frozenset({"memory_used", "memory_total"}): (Key.USED, Key.TOTAL),
        frozenset({"utilization", "memory_utilization"}): (Key.GPU_RATE, Key.MEMORY_RATE),
    }
    together = [names for names, keys in pairs.items() if missing in keys]
    throttles = {name for name in GPU if name.startswith("throttled")}
    assert lost == (together[0] if together else throttles if missing == Key.REASONS else lost)
    assert 1 <= len(lost) <= 3


def test_a_process_whose_memory_the_driver_does_not_tell_has_none() -> None:
    fake = Fake()
    fake.plant(0, {Key.PROCESS: 4242})
    (board,) = gpu.boards()
    assert values(board) == {}
    fake.plant(0, {Key.PROCESS_MEMORY: 5})
    assert board.sample(0) == [gpu.Sample("GPU-0a0", "memory_process", 5.0, 4242)]


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0x1, set()),  # idle
        (0x2 | 0x10 | 0x100, set()),  # clocks that somebody set, synchronised boards, a display
        (0x4, {"throttled_power"}),
        (0x20, {"throttled_thermal"}),
        (0x40 | 0x8, {"throttled_thermal", "throttled_hardware"}),
        (0x80, {"throttled_hardware"}),
    ],
)
@pytest.mark.parametrize("key", [Key.REASONS, Key.OLD_REASONS])
def test_throttle_reasons_are_told_apart_by_new_and_old_drivers(
    bits: int, names: set[str], key: Key
) -> None:
    Fake().plant(0, {key: bits})
    (board,) = gpu.boards()
    found = values(board)
    assert len(found) == 3
    assert {name for name, value in found.items() if value} == names


@pytest.mark.parametrize(
    ("function", "lost"),
    [
        ("nvmlMemory_v2", set()),
        ("nvmlDeviceGetCurrentClocksEventReasons", set()),
        ("nvmlDeviceGetFieldValues", {*COUNTERS, "ecc_corrected", "ecc_uncorrected",
                                      "temperature_memory"}),
        ("nvmlDeviceGetComputeRunningProcesses_v3", {"memory_process"}),
    ],
)  # fmt: skip
def test_an_older_pynvml_costs_what_it_lacks_alone(
    monkeypatch: pytest.MonkeyPatch, function: str, lost: set[str]
) -> None:
    """That of training's environment, as `pynvml` 11.4 is one."""
    Fake().plant(0, WHOLE | {Key.OLD_REASONS: 0})
    monkeypatch.delattr(pynvml, function)
    (board,) = gpu.boards()
    board.sample(SECOND)
    assert set(GPU) - set(values(board, 2 * SECOND)) == lost


def test_a_counter_that_began_anew_has_no_rate() -> None:
    fake = Fake()
    fake.plant(0, {197: 1000})
    (board,) = gpu.boards()
    rates = []
    for second, count in enumerate([1000, 3000, 10, 510], 1):
        fake.plant(0, {197: count})
        rates.append(values(board, second * SECOND).get("pcie_sent"))
    assert rates == [None, 2000, None, 500]


@pytest.mark.parametrize("key", [Key.IS_LOST, Key.FIELDS_LOST])
def test_a_gpu_that_falls_off_the_bus_is_lost(key: Key) -> None:
    fake = Fake(2)
    for number in (0, 1):
        fake.plant(number, WHOLE)
    first, second = gpu.boards()
    fake.plant(0, {key: 1})
    with pytest.raises(gpu.Lost, match="GPU-0a0"):
        first.sample(SECOND)
    assert second.sample(SECOND)


def test_mig_instances_have_memory_of_their_own_and_leave_the_rest_to_the_board() -> None:
    fake = Fake(2)
    fake.plant(1, WHOLE | {Key.MIG_MODE: 1, Key.MIG_USED_0: 7, Key.MIG_USED_1: 9})
    uuids = {board.uuid: board for board in gpu.boards()}
    assert list(uuids) == ["GPU-0a0", "GPU-1a1", "MIG-1a0", "MIG-1a1"]
    assert values(uuids["MIG-1a1"]) == {"memory_used": 9, "memory_total": float(141 << 30)}
    assert values(uuids["GPU-1a1"])["power"] == 655.25


def test_a_driver_that_is_not_loaded_is_said_in_one_error() -> None:
    Fake(error=9)
    with pytest.raises(DsprofError, match="Driver Not Loaded"):
        gpu.boards()


class Named:
    def __init__(self, uuid: str, model: str = "NVIDIA H200") -> None:
        self.uuid, self.model = uuid, model


THERE = [Named("GPU-aa11"), Named("GPU-ab22"), Named("MIG-c1"), Named("MIG-c2"), Named("GPU-d3")]
WHOLES = ["GPU-aa11", "GPU-ab22", "GPU-d3"]


@pytest.mark.parametrize(
    ("told", "uuids"),
    [
        (None, WHOLES),
        ("0,1,2", WHOLES),
        ("2,0", ["GPU-d3", "GPU-aa11"]),
        (" 1 , 0", ["GPU-ab22", "GPU-aa11"]),
        ("GPU-ab22,GPU-aa11", ["GPU-ab22", "GPU-aa11"]),
        ("GPU-d,0", ["GPU-d3", "GPU-aa11"]),  # cut, but only one GPU fits
        ("GPU-a", []),  # two fit
        ("MIG-c2", ["MIG-c2"]),
        ("1,-1,0", ["GPU-ab22"]),  # what follows an entry that means nothing is hidden
        ("0,9,1", ["GPU-aa11"]),
        ("0,0", []),
        ("", []),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices_says_which_gpu_comes_first(
    told: str | None, uuids: list[str]
) -> None:
    environment = {} if told is None else {"CUDA_VISIBLE_DEVICES": told}
    assert gpu.visible(environment, THERE) == uuids


def test_among_different_models_numbers_mean_something_only_by_the_bus() -> None:
    there = [Named("GPU-a", "NVIDIA T4"), Named("GPU-b")]
    assert gpu.visible({}, there) is None
    assert gpu.visible({"CUDA_VISIBLE_DEVICES": "1"}, there) is None
    assert gpu.visible({"CUDA_VISIBLE_DEVICES": "GPU-b"}, there) == ["GPU-b"]
    by_bus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert gpu.visible(by_bus | {"CUDA_VISIBLE_DEVICES": "1"}, there) == ["GPU-b"]


def test_boards_know_their_model() -> None:
    fake = Fake(2)
    fake.model(1, "Tesla T4")
    assert [board.model for board in gpu.boards()] == ["NVIDIA H200", "Tesla T4"]
