"""Time stamps of many lines at once, as microseconds since 1970."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import compress
from typing import Final

import numpy as np

#: No time: numpy's NaT.
UNKNOWN: Final = np.iinfo(np.int64).min

#: Clocks that tell no year are of the year 0, which is a leap year, until one is told.
_YEAR_1: Final = np.datetime64("0001-01-01", "us").astype(np.int64)

_SECOND: Final = 1_000_000
_QUARTER: Final = 900 * _SECOND
_AHEAD: Final = 60 * _SECOND  #: by which a logger's clock may be in front of its wrapper's
#: Between them, two clocks are of one zone: none is less than an hour from another.
_NEAR: Final = (-1800 * _SECOND, 3000 * _SECOND)
_FARTHEST: Final = 15 * 3600 * _SECOND  #: that zones of one moment can be apart

_PLAIN: Final = len("2023-03-15 13:21:52,800")
_DIGITS: Final = [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 20, 21, 22]
_MARKS: Final = np.frombuffer(b"--::", np.uint8)
_BETWEEN: Final = np.frombuffer(b" T_", np.uint8)
_POINT: Final = np.frombuffer(b",.", np.uint8)

#: Where the colons stand in `16:10`, `1:22:01` and `16:10:00`, and what their digits stand for.
_CLOCK_MARKS: Final = {5: [2], 7: [1, 4], 8: [2, 5]}
_WEIGHTS: Final = np.array([36000.0, 3600, 0, 600, 60, 0, 10, 1])
#: `Nov 21 05:33:09`, `Tue Nov 21 05:33:09 2026`.
_SPELT_DATE: Final = re.compile(
    rb"(?:[A-Z][a-z]{2} )?([A-Z][a-z]{2}) +(\d{1,2}) (\S+)(?: (\d{4}))?"
)
_MONTHS: Final = b"JanFebMarAprMayJunJulAugSepOctNovDec"
_CLOCK = re.compile(r"(?:(\d+) days?, )?(?:(\d+):)?(\d{1,2}):(\d\d)")
_SPELT = re.compile(r"(?=\d)(?:(\d+)d ?)?(?:(\d+)h ?)?(?:(\d+)m ?)?(?:(\d+)s)?")


def microseconds(stamps: Sequence[bytes | None]) -> np.ndarray:
    """int64 array; `UNKNOWN` where there is no stamp or it is no date.

    Reads `2023-03-15 13:21:52,800`, `2024-01-02T03:04:05.123456789Z`, a space behind the
    comma, `20231231 05:33:09`, `2026/11/21 05:33:09` and `11/21/2026 05:33:09`.
    """
    times = np.full(len(stamps), UNKNOWN, np.int64)
    told = [stamp or b"" for stamp in stamps]
    lengths = np.fromiter(map(len, told), np.int64, len(told))
    plain = lengths == _PLAIN
    if plain.any():
        times[plain] = _plain_stamps(b"".join(compress(told, plain)))
    for i in np.flatnonzero((lengths > 0) & (times == UNKNOWN)).tolist():
        times[i] = _one(_iso(told[i])).astype(np.int64)
    return times


def _plain_stamps(joined: bytes) -> np.ndarray:
    """Stamps of the form `2023-03-15 13:21:52,800`; `UNKNOWN` where one has another form."""
    text = np.frombuffer(joined, np.uint8).reshape(-1, _PLAIN)
    digits = text[:, _DIGITS] - np.uint8(48)
    fits = (digits < 10).all(axis=1) & np.isin(text[:, 10], _BETWEEN) & np.isin(text[:, 19], _POINT)
    fits &= (text[:, [4, 7, 13, 16]] == _MARKS).all(axis=1)
    year, month, day, hour, minute, second, milli = (
        digits[:, begin:end] @ 10 ** np.arange(end - begin - 1, -1, -1)
        for begin, end in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14), (14, 17))
    )
    months = (year - 1970) * 12 + month - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    length = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) - first
    fits &= (month >= 1) & (month <= 12) & (day >= 1) & (day <= length)
    fits &= (hour < 24) & (minute < 60) & (second < 60)
    seconds = (((first + day - 1) * 24 + hour) * 60 + minute) * 60 + second
    return np.where(fits, (seconds * 1000 + milli) * 1000, UNKNOWN)


def _iso(stamp: bytes) -> str:
    text = stamp.decode("ascii", "replace")
    if text[4:5] == "/":
        text = text[:10].replace("/", "-") + text[10:]
    if text[4:5] == "-":
        text = f"{text[:10]} {text[11:]}" if text[10:11] == "_" else text
        if len(text) > 19:
            fraction = text[20:].strip()
            zone = fraction.lstrip("0123456789")
            if zone not in ("", "Z"):
                return _shifted(text)
            text = f"{text[:19]}.{fraction.rstrip('Z')[:6]}" if text[19] in ",." else text[:19]
        return text
    if text[8:9] == " " and text[:8].isdigit():  # 20251202 09:12:08
        return f"{text[:4]}-{text[4:6]}-{text[6:]}"
    if text[2:3] == "/":  # American: month/day/year
        return f"{text[6:10]}-{text[:2]}-{text[3:5]}{text[10:]}"
    return text


def _shifted(text: str) -> str:
    """A stamp with a zone, in UTC."""
    try:
        moment = datetime.fromisoformat(text.replace(",", ".")[:64])
    except ValueError:
        return ""
    offset = moment.utcoffset()
    return text[:19] if offset is None else (moment.replace(tzinfo=None) - offset).isoformat()


def _one(text: str) -> np.datetime64:
    try:
        return np.datetime64(text, "us")
    except ValueError:
        return np.datetime64("NaT", "us")


def as_logged(own: np.ndarray, wrapped: np.ndarray) -> np.ndarray:
    """When a logger printed its lines, by the clock of the wrapper that stamped them too.

    A wrapper stamps what reaches it, which may be a block of many lines at once. The logger may be
    in another zone and does not say so: then whole quarters of an hour are its zone's, and the
    rest is how long the line waited. A logger's whole second is no news where the wrapper is as
    close, and a stamp that no zone explains is of another moment. A wrapper that tells no year
    has the logger's.

    Args:
        own: the logger's, `UNKNOWN` where there is none.
        wrapped: the wrapper's, `UNKNOWN` or of the year 0 where it tells no date.
    """
    yearless = np.flatnonzero((own != UNKNOWN) & (wrapped != UNKNOWN) & (wrapped < _YEAR_1))
    if len(yearless):
        wrapped = wrapped.copy()
        years = own[yearless].astype("datetime64[us]").astype("datetime64[Y]").astype(np.int64)
        dated = in_year(wrapped[yearless], years + 1970)
        near = np.abs(dated - own[yearless]) < _FARTHEST
        wrapped[yearless[near]] = dated[near]
    known = (own != UNKNOWN) & (wrapped >= _YEAR_1)
    waited = np.where(known, wrapped - own, 0)
    known &= np.abs(waited) < _FARTHEST
    near = (waited > _NEAR[0]) & (waited < _NEAR[1])
    waited = np.where(near, waited, (waited + _AHEAD) % _QUARTER - _AHEAD)
    rounded = (own % _SECOND == 0) & (waited >= 0) & (waited < _SECOND)
    waited[rounded] = 0
    alone = (own != UNKNOWN) & (wrapped < _YEAR_1)
    return np.where(alone, own, np.where(known, wrapped - waited, wrapped))


def undated(clock: bytes) -> bytes:
    """glog's `1121 05:58:21.685000`, torch's `321 02:07:08.4082` or syslog's `Nov 21 05:58:21` as a
    stamp of the year 0, or of the one that follows, as in `Tue Nov 21 05:58:21 2026`."""
    spelt = _SPELT_DATE.fullmatch(clock)
    if spelt is not None:
        month = _MONTHS.find(spelt[1]) // 3 + 1
        return b"%s-%02d-%02d %s" % (spelt[4] or b"0000", month, int(spelt[2]), spelt[3])
    day, _, time = clock.partition(b" ")
    return b"0000-%s-%s %s" % (day[-4:-2].zfill(2), day[-2:], time[:15])


def in_year(times: np.ndarray, year: int | np.ndarray) -> np.ndarray:
    """Microseconds as given, but those of the year 0 in `year`, or in that of each.

    They become `UNKNOWN` where that is 0, no year being told, or has no such day.
    """
    waiting = np.flatnonzero((times != UNKNOWN) & (times < _YEAR_1))
    if not len(waiting):
        return times
    moments = times[waiting].astype("datetime64[us]")
    months = moments.astype("datetime64[M]")
    years = np.broadcast_to(np.asarray(year, np.int64), times.shape)[waiting]
    moved = months + (12 * years).astype("timedelta64[M]")
    there = moved + (moments - months)
    dated = there.astype(np.int64)
    dated[(there.astype("datetime64[M]") != moved) | (years == 0)] = UNKNOWN
    times = times.copy()
    times[waiting] = dated
    return times


def behind(times: np.ndarray, month: int) -> np.ndarray:
    """Microseconds as given, but those of the year 0 in the year that puts them less than eleven
    months behind `month`, in which a source was begun, or in the month in front of it: over New
    Year the next year begins, and a line may be printed late.

    Args:
        month: as `12 * year + month - 1`.
    """
    if not ((times != UNKNOWN) & (times < _YEAR_1)).any():
        return times
    told = times.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64) % 12
    first = month - 1
    return in_year(times, (first + (told - first) % 12) // 12)


def seconds_of_clocks(texts: Sequence[bytes | None]) -> np.ndarray:
    """float64 array of `seconds_of_clock`; NaN where there is no text or it is no clock."""
    told = [text or b"" for text in texts]
    lengths = np.fromiter(map(len, told), np.int64, len(told))
    seconds = np.full(len(told), np.nan)
    for length, marks in _CLOCK_MARKS.items():
        here = np.flatnonzero(lengths == length)
        text = np.frombuffer(b"".join([told[i] for i in here.tolist()]), np.uint8)
        digits = text.reshape(-1, length) - np.uint8(ord("0"))
        fits = (digits[:, marks] == ord(":") - ord("0")).all(axis=1)
        digits[:, marks] = 0
        fits &= (digits < 10).all(axis=1)
        seconds[here[fits]] = digits[fits] @ _WEIGHTS[-length:]
    for i in np.flatnonzero(np.isnan(seconds) & (lengths > 0)).tolist():
        read = seconds_of_clock(told[i].decode("utf-8", "replace").strip())
        seconds[i] = np.nan if read is None else read
    return seconds


def seconds_of_clock(text: str) -> float | None:
    """Seconds of `16:10`, `1:22:01`, `2 days, 3:04:05`, `2d 3h 4m 5s`; None if it is no clock."""
    match = _CLOCK.fullmatch(text.strip()) or _SPELT.fullmatch(text.strip())
    if match is None:
        return None
    days, *rest = map(int, match.groups("0"))
    return float(((days * 24 + rest[0]) * 60 + rest[1]) * 60 + rest[2])
