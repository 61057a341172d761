"""Which GPU is CUDA's device 0, by CUDA_VISIBLE_DEVICES; for frameworks that give no UUID."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Named(Protocol):
    """What must be known of a GPU; `Board` satisfies it."""

    @property
    def uuid(self) -> str: ...
    @property
    def model(self) -> str: ...


def visible(environment: Mapping[str, str], there: Sequence[Named]) -> list[str] | None:
    """UUIDs of the visible GPUs in CUDA's order; None if the order cannot be known.

    Rules of the CUDA programming guide: an entry of CUDA_VISIBLE_DEVICES is an index, or a UUID
    that may be shortened to a prefix that only one GPU has. The first invalid entry ends the list,
    and a GPU that is named twice empties it. Indices follow CUDA_DEVICE_ORDER, whose default is
    fastest first; so if GPUs are of different models, only PCI_BUS_ID makes indices meaningful
    here.

    Args:
        environment: environment variables of the process.
        there: all GPUs in NVML's order, which is that of the PCI bus, and MIG instances.
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
