"""Conversion between seconds, bytes and numbers, and the ways in which people write them."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "min": 60.0,
    "m": 60.0,
    "h": 3600.0,
    "Gs": 1e9,  # DeepSpeed's flops profiler prints it if its timer is broken
    "Ms": 1e6,
    "Ks": 1e3,
}

#: Powers of 1024 for all suffixes, as DeepSpeed and PyTorch print sizes.
BYTES: Final = {
    "B": 1,
    "KB": 1 << 10,
    "MB": 1 << 20,
    "GB": 1 << 30,
    "TB": 1 << 40,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "bytes": 1,
}

_PREFIX: Final = {
    "": 1.0,
    "K": 1e3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "B": 1e9,  # "1.3 B parameters"
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Z": 1e21,
}

NOTHING: Final = 0.5e-9  #: seconds; less is a rounding error, because no clock resolves it

_LONGEST_NUMBER: Final = 1e12  #: larger numbers are written with an exponent

_QUANTITY = re.compile(r"\s*([-+]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-zµ/]*)")


def number(text: str) -> float | None:
    """The number that a text states, including `nan` and `inf`; None if it is none."""
    if len(text) > 64:  # such a run of digits is hostile input, not a measurement
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _quantity(text: str) -> tuple[float, str] | None:
    match = _QUANTITY.match(text[:64])
    if match is None:
        return None
    value = number(match[1].replace(",", ""))
    return None if value is None else (value, match[2])


def duration(text: str) -> float | None:
    """Seconds in a text such as `356.67 us`, `1.8 s`, `2min`; None without a known unit."""
    return _measured(text, SECONDS)


def size(text: str) -> float | None:
    """Bytes in a text such as `8.0 KB`, `2.00 GiB`, `0B`; None without a known unit."""
    return _measured(text, BYTES)


def _measured(text: str, units: Mapping[str, float]) -> float | None:
    found = _quantity(text)
    if found is None or found[1] not in units:
        return None
    return found[0] * units[found[1]]


def amount(text: str) -> float | None:
    """The number in a text such as `17.29 K`, `93.4TFLOPS`, `1.3 B`, `42`, with its decimal prefix
    applied; None if it is no number.
    """
    found = _quantity(text)
    if found is None:
        return None
    return found[0] * _PREFIX.get(found[1][:1], 1.0)


_LINK: Final = re.compile(
    r"\s*(\d{1,9}(?:\.\d{0,9})?)\s*(?P<prefix>[KkMGT]?)"
    r"(?:(?P<bytes>B|B/s|Bps|[Bb]ytes?/s)|(?P<bits>b|b/s|bps|[Bb]its?|[Bb]its?/s))?\s*"
)
SLOWEST_LINK: Final = 1e6  #: bytes per second; less is a mistake in the unit
FASTEST_LINK: Final = 100e12


def bandwidth(text: str) -> float | None:
    """Bytes per second of a link given as `100Gb`, `25Gbps`, `12.5GB/s` (powers of 1000).

    `100G` means bits, as in the names of Ethernet standards. None without a unit, or if the speed
    is not between `SLOWEST_LINK` and `FASTEST_LINK`.
    """
    match = _LINK.fullmatch(text[:64])
    if match is None or not (match["prefix"] or match["bytes"] or match["bits"]):
        return None
    speed = float(match[1]) * _PREFIX[match["prefix"]] / (1 if match["bytes"] else 8)
    return speed if SLOWEST_LINK <= speed <= FASTEST_LINK else None


def digits(value: float, significant: int = 3, most: int = 4) -> str:
    """`value` with this many significant digits (9.996 is 10.0), `most` behind the point, and an
    exponent only for absurdly large numbers.
    """
    if value == 0:
        return "0"
    if abs(value) >= _LONGEST_NUMBER:
        return f"{value:.2e}"
    rounded = abs(value) * (1 + 0.5 * 10**-significant)
    decimals = max(0, significant - 1 - math.floor(math.log10(rounded)))
    return f"{value:,.{min(decimals, most)}f}"


def format_seconds(seconds: float) -> str:
    """Seconds as `5.79 s`, `302 ms`, `45 µs`, `2 h 05 min`; "unknown" if not finite.

    Below 100 µs there are two significant digits, because logs print hundredths of a millisecond.
    """
    if not math.isfinite(seconds):
        return "unknown"
    seconds = seconds if abs(seconds) >= NOTHING else 0.0
    size_ = abs(seconds)
    if 3600 <= size_ < _LONGEST_NUMBER:
        minutes = round(seconds / 60)
        return f"{minutes // 60:,} h {minutes % 60:02} min"
    if 120 <= size_ < 3600:
        whole = round(seconds)
        return f"{whole // 60} min {whole % 60:02} s"
    if size_ >= 0.9995 or size_ == 0:
        return f"{digits(seconds)} s"
    if size_ >= 0.9995e-3:
        return f"{digits(seconds * 1e3)} ms"
    return f"{digits(seconds * 1e6, 2)} µs"


def _scaled(value: float, base: float, names: tuple[str, ...]) -> str:
    power = 0
    while abs(value) >= base and power < len(names) - 1:
        value /= base
        power += 1
    return f"{digits(value)} {names[power]}"


def format_bytes(count: float) -> str:
    """Bytes as `22.9 GiB`, `8.00 KiB`, `16 B`; "unknown" if not finite."""
    if not math.isfinite(count):
        return "unknown"
    if count == int(count) and abs(count) < 1024:
        return f"{count:.0f} B"
    return _scaled(count, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def format_bandwidth(bytes_per_second: float) -> str:
    """Bandwidth as `12.5 GB/s`, in powers of 1000 as for networks; "unknown" if not finite."""
    if not math.isfinite(bytes_per_second):
        return "unknown"
    return _scaled(bytes_per_second, 1000, ("B/s", "KB/s", "MB/s", "GB/s", "TB/s"))


def format_count(value: float) -> str:
    """A count as `12,000`, `1.3 B` (billions), `345 M`; "unknown" if not finite."""
    if not math.isfinite(value):
        return "unknown"
    if abs(value) < 1e6:
        return f"{value:,.0f}" if float(value).is_integer() else digits(value)
    return _scaled(value / 1e6, 1000, ("M", "B", "T", "P"))


_NEARLY: Final = 99.5  #: percent that would round to all
_ALL: Final = 100 - 1e-4  #: what lacks less is a rounding error: pages hold four bytes a number


def format_share(share: float) -> str:
    """A share (0 to 1) as `76 %`, `0.4 %`, `under 0.1 %`; "unknown" if not finite.

    What is not all is never `100 %`, but at most `99.9 %`.
    """
    percent = share * 100
    if not math.isfinite(percent):
        return "unknown"
    if 0 < percent < 0.1:
        return "under 0.1 %"
    if abs(percent) < 9.95:
        return f"{percent:.1f} %"
    if _NEARLY <= percent < _ALL:
        return f"{math.floor(percent * 10 + 1e-9) / 10:.1f} %"
    return f"{percent:.0f} %" if abs(percent) < _LONGEST_NUMBER else f"{percent:.2e} %"


def windows(many: int | None, count: int = 2) -> str:
    """Words for windows of `many` steps, such as `windows of 10 steps`; "" for single steps.

    None, for windows that differ, gives `windows of several steps`. `count` is the number of
    windows.
    """
    one = "window" if count == 1 else "windows"
    return "" if many == 1 else f"{one} of {f'{many:,}' if many else 'several'} steps"


def ranges(numbers: Iterable[int], most: int = 8) -> str:
    """`0 to 3, 7, 9 to 12`; how many more there are, if there are many."""
    spans = _spans(numbers)
    rest = _sizes(spans[most:])
    return ", ".join(_said(spans[:most])) + (f" and {rest:,} more" if rest else "")


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def format_ranks(ranks: Collection[int], most: int = 8) -> str:
    """`rank 1`, `ranks 2 and 3`, `ranks 0, 1 and 3`, `ranks 8 to 15`; of many only some."""
    spans = _spans(ranks) if len(ranks) > _FEW else [(one, one) for one in sorted(ranks)]
    said = _said(spans[:most])
    if len(spans) > most:
        said.append(f"{_sizes(spans[most:]):,} more")
    *first, last = said
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(first)}{' and ' * bool(first)}{last}"


_FEW: Final = 3  #: as many are all named


def _spans(numbers: Iterable[int]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for value in sorted(set(numbers)):
        if spans and value == spans[-1][1] + 1:
            spans[-1] = spans[-1][0], value
        else:
            spans.append((value, value))
    return spans


def _said(spans: Iterable[tuple[int, int]]) -> list[str]:
    return [f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in spans]


def _sizes(spans: Iterable[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in spans)
