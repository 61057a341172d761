"""Which device is recorded, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from dsprof.hook.on_gpu import cuda, gpu
from dsprof.hook.on_gpu.cuda import Device
from dsprof.hook.on_gpu.device import DeviceTimeline
from tests.hook.on_gpu.fakes import (
    FakeStream,
    rows,
)


@pytest.mark.parametrize(
    ("environment", "uuid"),
    [
        ({}, "GPU-ab"),
        ({"CUDA_VISIBLE_DEVICES": "3"}, "GPU-ab"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-c"}, None),
    ],
)
def test_torch_tells_the_uuid_but_for_mig(environment: dict[str, str], uuid: str | None) -> None:
    class Told:
        uuid = "ab"

    assert cuda._uuid(Told(), 0, environment) == uuid
    assert cuda._uuid(object(), 0, environment) is None


def test_the_device_is_the_one_that_the_process_has_its_memory_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A script that says `model.to("cuda:2")` may never make that the current device."""
    torch = pytest.importorskip("torch")
    memory, backend = [0, 5, 70], "native"
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda index: memory[index])
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: backend)
    assert cuda._in_use() == 2
    memory[1] = 70
    assert cuda._in_use() == 1
    memory[:] = [0, 0, 0]
    assert cuda._in_use() == 1
    memory[2], backend = 70, "cudaMallocAsync"  # which would ask the devices
    assert cuda._in_use() == 1


def test_an_allocator_that_keeps_no_statistics_ends_no_recording(
    timeline: DeviceTimeline, stream: FakeStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = pytest.importorskip("torch.cuda.memory")

    def pluggable(_: int) -> None:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")

    monkeypatch.setattr(memory, "memory_stats_as_nested_dict", pluggable)
    found = gpu.Gpu(Device(0, None, 5, "H100", stream.cuda), timeline.writer, tmp_path)
    assert found.allocator() == {}


def test_a_process_that_uses_a_gpu_only_later_is_told_by_its_recording(
    timeline: DeviceTimeline, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "device", lambda: None)
    assert not gpu.came_late(timeline.writer)
    monkeypatch.setattr(gpu, "device", lambda: Device(0, "GPU-ab", 5, "H100", stream.cuda))
    assert gpu.came_late(timeline.writer)
    assert rows(timeline).config == {"gpu": "GPU-ab", "gpu_memory_bytes": 5, "gpu_model": "H100"}


def test_a_pytorch_that_would_ask_for_devices_is_not_asked_for_what_it_is_built(
    timeline: DeviceTimeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")

    def of_2_6() -> None:
        raise RuntimeError("Cannot access accelerator device when none is available.")

    monkeypatch.setattr(torch, "accelerator", SimpleNamespace(current_accelerator=of_2_6))
    assert gpu.Gpu.found(timeline.writer, tmp_path) is None
    assert rows(timeline).config == {"phases_on": "host"}
