"""Which GPU is CUDA's device 0: CUDA_VISIBLE_DEVICES, where the framework gives no UUID."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Named(Protocol):
    """What must be known of a GPU; a `Board` is one."""

    @property
    def uuid(self) -> str: ...
    @property
    def model(self) -> str: ...


def visible(environment: Mapping[str, str], there: Sequence[Named]) -> list[str] | None:
    """UUIDs in CUDA's order; None where the order cannot be known.

    As the CUDA programming guide has it: entries are numbers, or UUIDs that may be cut as
    long as one GPU alone fits; the first one that means nothing ends the list, and a GPU
    named twice empties it. Numbers follow CUDA_DEVICE_ORDER, by default the fastest first:
    among different models only PCI_BUS_ID says which is which.

    Args:
        environment: of the process.
        there: GPUs in NVML's order, that of the PCI bus, and MIG instances.
    """
    whole = [gpu for gpu in there if not gpu.uuid.startswith("MIG-")]
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    ordered = by_bus or len({gpu.model for gpu in whole}) <= 1
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [gpu.uuid for gpu in whole] if ordered else None
    found: list[str] = []
    for entry in (entry.strip() for entry in named.split(",")):
        if entry.isdecimal() and not ordered:
            return None
        uuid = _meant(entry, whole, there)
        if uuid is None:
            break
        found.append(uuid)
    return found if len(set(found)) == len(found) else []


def _meant(entry: str, whole: Sequence[Named], there: Sequence[Named]) -> str | None:
    if entry.isdecimal():
        return whole[int(entry)].uuid if int(entry) < len(whole) else None
    fitting = [gpu.uuid for gpu in there if entry and gpu.uuid.startswith(entry)]
    return fitting[0] if len(fitting) == 1 else None
