"""Counters of each GPU, by their names in `events.GPU`; any of them may be missing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final, NamedTuple, Optional

from dsprof.errors import DsprofError

Values = dict[str, Optional[float]]
Reading = Callable[[Any, Any], Values]

#: Reasons for a reduced clock, as bits of `nvmlClocksEventReasons` in `nvml.h`.
THROTTLES: Final = {
    "throttled_power": 0x04,  # software power cap
    "throttled_thermal": 0x20 | 0x40,  # software and hardware, thermal
    "throttled_hardware": 0x08 | 0x80,  # slowdown pin, power brake of the board or the rack
}

_ALL_LINKS: Final = 0xFFFFFFFF  # scope of an NVLink counter: the sum over all links
_KIB: Final = 1024
#: Field of `nvmlDeviceGetFieldValues`: scope, name, factor to bytes or degrees.
_FIELDS: Final = {
    3: (0, "ecc_corrected", 1),
    4: (0, "ecc_uncorrected", 1),
    82: (0, "temperature_memory", 1),
    138: (_ALL_LINKS, "nvlink_sent", _KIB),
    139: (_ALL_LINKS, "nvlink_received", _KIB),
    197: (0, "pcie_sent", 1),
    198: (0, "pcie_received", 1),
}
#: Counters that only increase; their samples are rates, in bytes per second.
COUNTERS: Final = ("nvlink_sent", "nvlink_received", "pcie_sent", "pcie_received")
#: Member of NVML's value union, by value type.
_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class Sample(NamedTuple):
    """One value of one counter."""

    gpu: str  # UUID
    name: str  # of `events.GPU`, which gives the unit
    value: float
    process: int | None = None  # process id, for counters per process


class Lost(Exception):  # noqa: N818 - it is the GPU that is lost
    """The GPU fell off the bus and no longer responds."""


def boards() -> list[Board]:
    """Every GPU that NVML shows here, and their MIG instances.

    Raises:
        DsprofError: `pynvml`, the driver's library or the driver is missing.
    """
    pynvml = _pynvml()
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        raise DsprofError(str(error), "NVML", "is the NVIDIA driver loaded?") from error
    return [board for index in range(count) for board in _boards_at(pynvml, index)]


def _pynvml() -> Any:
    """The environment's `pynvml`, or else the one that is installed with dsprof.

    The latter is imported under a name of ours, so that the rest of the process, which has no
    `pynvml`, still has none.
    """
    try:
        import pynvml
    except ImportError as error:
        name, place = f"{__name__}.pynvml", Path(__file__).parents[2] / "pynvml.py"
        if name not in sys.modules:
            if not place.is_file():
                what, todo = "pynvml is not installed", "pip install nvidia-ml-py"
                raise DsprofError(what, "NVML", todo) from error
            spec: Any = spec_from_file_location(name, place)
            sys.modules[name] = module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        return sys.modules[name]
    return pynvml


def _boards_at(nvml: Any, index: int) -> Iterator[Board]:
    """The GPU with that index, unless it is already lost, and its MIG instances."""
    with contextlib.suppress(nvml.NVMLError):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        model = _word(nvml.nvmlDeviceGetName(handle))
        yield Board(nvml, handle, _word(nvml.nvmlDeviceGetUUID(handle)), model)
        if nvml.nvmlDeviceGetMigMode(handle)[0]:
            yield from _instances(nvml, handle, model)


def _instances(nvml: Any, handle: Any, model: str) -> Iterator[Board]:
    """MIG instances. Only memory is read per instance; all other counters are the board's."""
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except nvml.NVMLError_NotFound:  # an index may be unused
            continue
        yield Board(nvml, instance, _word(nvml.nvmlDeviceGetUUID(instance)), model, INSTANCE)


def _word(told: str | bytes) -> str:
    """A name; pynvml before 11.5 gives bytes."""
    return told.decode() if isinstance(told, bytes) else told


class Board:
    """A GPU, or a MIG instance of one. A reading that it, or this pynvml, does not support is tried
    only once.
    """

    def __init__(
        self,
        nvml: Any,
        handle: Any,
        uuid: str,
        model: str,
        readings: Sequence[Sequence[Reading]] | None = None,
    ) -> None:
        self.uuid, self.model = uuid, model
        self._nvml, self._handle = nvml, handle
        self._never = (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_NO_PERMISSION,
        )
        self._readings = [list(ways) for ways in readings or BOARD]
        self._before: dict[str, tuple[int, float]] = {}

    def sample(self, at: int) -> list[Sample]:
        """All counters at time `at` (ns). Rates are means since the previous sample.

        Raises:
            Lost: the GPU fell off the bus.
        """
        found = [
            Sample(self.uuid, name, value)
            for ways in self._readings
            for name, counted in self._read(ways).items()
            if counted is not None and (value := self._told(name, counted, at)) is not None
        ]
        return found + self._processes()

    def _read(self, ways: list[Reading]) -> Values:
        """Read by the first way that is supported. Ways that are not are removed from `ways`."""
        while ways:
            try:
                return ways[0](self._nvml, self._handle)
            except AttributeError:  # noqa: PERF203 - this pynvml is too old to have it
                del ways[0]
            except self._nvml.NVMLError as error:
                if error.value == self._nvml.NVML_ERROR_GPU_IS_LOST:
                    raise Lost(self.uuid) from error
                if error.value not in self._never:
                    return {}  # a failure that may pass
                del ways[0]
        return {}

    def _told(self, name: str, value: float, at: int) -> float | None:
        """The value of a sample: for `COUNTERS` the rate per second, None at first and if the
        counter was reset.
        """
        if name not in COUNTERS:
            return value
        since, before = self._before.get(name, (at, value))
        self._before[name] = at, value
        if at <= since or value < before:
            return None
        return (value - before) / ((at - since) * 1e-9)

    def _processes(self) -> list[Sample]:
        """Memory per process, bytes. Process ids are the host's, unknown in some containers."""
        try:
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(self._handle)
        except (AttributeError, self._nvml.NVMLError):
            return []
        return [
            Sample(self.uuid, "memory_process", float(process.usedGpuMemory), process.pid)
            for process in running
            if process.usedGpuMemory is not None
        ]


def _memory(nvml: Any, handle: Any) -> Values:
    info = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    return {"memory_used": info.used, "memory_total": info.total}


def _memory_v1(nvml: Any, handle: Any) -> Values:
    """For drivers before 510; memory that the driver reserves counts as used."""
    info = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {"memory_used": info.used, "memory_total": info.total}


def _utilization(nvml: Any, handle: Any) -> Values:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"utilization": rates.gpu, "memory_utilization": rates.memory}


def _power(nvml: Any, handle: Any) -> Values:
    return {"power": nvml.nvmlDeviceGetPowerUsage(handle) / 1000}


def _temperature(nvml: Any, handle: Any) -> Values:
    return {"temperature": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)}


def _clock_sm(nvml: Any, handle: Any) -> Values:
    return {"clock_sm": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)}


def _clock_memory(nvml: Any, handle: Any) -> Values:
    return {"clock_memory": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)}


def _throttles(nvml: Any, handle: Any) -> Values:
    return _reasons(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))


def _throttles_v1(nvml: Any, handle: Any) -> Values:
    """For drivers before 535, where the function has another name."""
    return _reasons(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _reasons(bits: int) -> Values:
    return {name: float(bool(bits & mask)) for name, mask in THROTTLES.items()}


def _fields(nvml: Any, handle: Any) -> Values:
    """Several counters in one call; each answer has its own error code."""
    asked = [(field, scope) for field, (scope, _, _) in _FIELDS.items()]
    values: Values = {}
    for answer in nvml.nvmlDeviceGetFieldValues(handle, asked):
        if answer.nvmlReturn == nvml.NVML_ERROR_GPU_IS_LOST:
            raise nvml.NVMLError(answer.nvmlReturn)
        if answer.nvmlReturn == nvml.NVML_SUCCESS and answer.valueType < len(_MEMBERS):
            _, name, factor = _FIELDS[answer.fieldId]
            values[name] = getattr(answer.value, _MEMBERS[answer.valueType]) * factor
    return values


#: Each inner sequence holds alternative ways to read the same counters, best first; the next one is
#: tried if one is not supported.
INSTANCE: Final[Sequence[Sequence[Reading]]] = ((_memory, _memory_v1),)
BOARD: Final[Sequence[Sequence[Reading]]] = (
    *INSTANCE, (_utilization,), (_power,), (_temperature,), (_clock_sm,), (_clock_memory,),
    (_throttles, _throttles_v1), (_fields,),
)  # fmt: skip
