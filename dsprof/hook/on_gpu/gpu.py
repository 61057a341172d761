"""What is recorded in addition if the process computes on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsprof.hook.guard import Guard
from dsprof.hook.on_gpu.cuda import Device, Marks, device
from dsprof.hook.on_gpu.device import DeviceTimeline
from dsprof.hook.on_gpu.device_collectives import DeviceCollectives
from dsprof.hook.on_gpu.sampler import Sampler
from dsprof.hook.on_gpu.streams import Streams
from dsprof.hook.patches import Patches
from dsprof.recording import Writer

if TYPE_CHECKING:
    from typing import Self  # since 3.11


class Gpu:
    """Phases in device time, the allocator's statistics, and the node's GPU counters."""

    def __init__(self, told: Device, writer: Writer, folder: Path) -> None:
        self._number = told.number
        self.timeline = DeviceTimeline(writer, Marks(told.cuda))
        self.collectives = DeviceCollectives(self.timeline)
        unnamed = told.number if told.uuid is None else None
        self._sampler = Sampler(writer, folder, self._step, unnamed=unnamed)
        _tell(told, writer)
        if told.uuid:
            writer.config("gpu", told.uuid)

    @classmethod
    def found(cls, writer: Writer, folder: Path) -> Self | None:
        """None if the process uses no GPU yet. Records by which clock phases are timed."""
        told = device()
        writer.config("phases_on", "gpu" if told else "host")
        if _is_built_for_cpus():
            writer.config("accelerator", "cpu")
        return cls(told, writer, folder) if told else None

    def start(self, patches: Patches, guard: Guard) -> None:
        import torch

        accelerator = getattr(torch, "accelerator", None)
        Streams(self.timeline, self.collectives).patch(torch.cuda, patches, guard, accelerator)
        self._sampler.start()

    def stop(self) -> None:
        self._sampler.stop()

    def allocator(self) -> Mapping[str, Any]:
        """Nested statistics: `torch.cuda.memory_stats` would also flatten and sort them. Empty if
        another allocator than PyTorch's has none.
        """
        from torch.cuda.memory import memory_stats_as_nested_dict

        with contextlib.suppress(RuntimeError):
            found: Mapping[str, Any] = memory_stats_as_nested_dict(self._number)
            return found
        return {}

    def _step(self) -> int:
        track = self.timeline.current
        return track.step if track else -1


def _is_built_for_cpus() -> bool:
    """Whether PyTorch is built for CPUs only. Must not be the first use of a device.

    PyTorch 2.6 has `current_accelerator`, but it queries devices, and fails where there is none.
    Since 2.7 it has the parameter `check_available`, whose default does not query them.
    """
    import torch

    if not hasattr(torch, "accelerator"):
        return False
    current = torch.accelerator.current_accelerator
    return "check_available" in signature(current).parameters and current() is None


def came_late(writer: Writer) -> bool:
    """Whether the process began to use a GPU only after recording began; if so, record which one.

    Its phases remain host times, and a reader must know that.
    """
    told = device()
    if told is None:
        return False
    writer.config("gpu", told.uuid or f"device {told.number}")
    _tell(told, writer)
    return True


def _tell(told: Device, writer: Writer) -> None:
    writer.config("gpu_memory_bytes", told.memory)
    writer.config("gpu_model", told.model)
