"""A log in ranges, cut anywhere, says what it says in one piece."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from dsprof import grammar, logs
from dsprof.logs import Log
from dsprof.logs.scanning import ranges
from dsprof.logs.scanning.ranges import Range, scan_range
from dsprof.logs.sources.source import Source
from tests.logs.reading import PFX, STEP, difference
from tests.logs.test_ways import TABLE, TEXT, _text

ROOT = Path(__file__).parents[3]
LOGS = [*ROOT.glob("sample_logs/*.log"), *ROOT.glob("../shared/corpus/*.log")]
GLOG = b"[rank0]:[W315 14:%02d:21.685000000 ProcessGroupNCCL.cpp:1] " + STEP + b"\n"


def _joined(path: Path, cuts: Iterable[int]) -> Log:
    """The log read in ranges that meet at these bytes."""
    size = path.stat().st_size
    bounds = [0, *sorted({cut for cut in cuts if 0 < cut < size}), size]
    parts = [Range(str(path), start, end) for start, end in pairwise(bounds)]
    scanners = [scan_range(p, grammar.builtin(), last=p is parts[-1]) for p in parts]
    for later in scanners[1:]:
        scanners[0].join(later)
    return logs.Reader(grammar.builtin(), Source(str(path)), scanners[0], size).log()


def _assert_alike(joined: Log, whole: Log, why: object = "") -> None:
    assert difference(whole.events, joined.events) == "", why
    assert joined.coverage.patterns == whole.coverage.patterns, why
    assert joined.coverage.lines == whole.coverage.lines, why
    assert joined.meta["fingerprints"] == whole.meta["fingerprints"], why


@pytest.mark.parametrize("width", [257, 4099, 65537])
def test_ranges_cut_anywhere_give_the_events_of_the_whole(width: int, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    text = _text(20) if width < 1000 else TEXT * 3
    path.write_bytes(text)
    _assert_alike(_joined(path, range(0, len(text), width)), logs.read([path]))


@pytest.mark.parametrize("path", sorted(LOGS), ids=lambda path: path.stem)
def test_a_real_log_cut_anywhere_gives_the_events_of_the_whole(path: Path, tmp_path: Path) -> None:
    """Some in two ranges, most in more: each is read anew, whatever its length."""
    data = path.read_bytes()
    copy = tmp_path / "run.log"
    copy.write_bytes(data)
    whole = logs.read([copy])
    chance = random.Random(len(data))
    line_ends = [at for at, byte in enumerate(data) if byte in b"\n\r"] or [0]
    for count in (1, 1) if len(data) % 4 == 0 else (8,):
        anywhere = [chance.randrange(len(data)) for _ in range(count)]
        at_lines = [chance.choice(line_ends) + chance.randrange(3) for _ in range(count)]
        cuts = chance.sample(anywhere + at_lines, count)
        _assert_alike(_joined(copy, cuts), whole, cuts)


def test_a_year_that_is_told_late_counts_in_all_ranges_behind(tmp_path: Path) -> None:
    dated = PFX + STEP % 1 + b"\n"
    text = GLOG % (1, 1) + dated + b"".join(GLOG % (k, k) for k in range(2, 60))
    text += dated.replace(b"2024", b"2026") + GLOG % (59, 60)
    path = tmp_path / "run.log"
    path.write_bytes(text)
    whole = logs.read([path])
    _assert_alike(_joined(path, range(0, len(text), 300)), whole)
    times = [*map(str, whole.events["at"].to_pylist())]
    assert times[0] == "None"
    assert "2024-03-15 14:30:21.685000" in times


def test_a_clock_that_no_date_gives_a_year_is_none_in_any_range(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"".join(GLOG % (k, k) for k in range(2, 60)))
    whole = logs.read([path])
    _assert_alike(_joined(path, range(0, 9000, 300)), whole)
    assert whole.events["at"].null_count == whole.events.num_rows


def test_a_table_that_begins_again_behind_the_cut_ends_the_one_in_front(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    begun = TABLE[: TABLE.index(b"broadcast")]
    path.write_bytes(begun + TABLE)
    _assert_alike(_joined(path, [len(begun)]), logs.read([path]))


def test_a_last_bar_stands_where_it_stood_on_its_line(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    bar = b"\r  3%|###       | 15/500 [00:30<16:10,  2.00s/it]"
    text = PFX + STEP % 1 + b"\n" + bar + PFX + STEP % 2 + b"\n"
    path.write_bytes(text)
    for cut in (3, len(text) - 2):
        _assert_alike(_joined(path, [cut]), logs.read([path]))


def test_two_processes_give_the_events_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(TEXT * 3)
    whole = logs.read([path])
    monkeypatch.setattr(ranges, "_SIZE", len(TEXT) // 3)
    monkeypatch.setattr(logs, "_SHARE", 1)
    told: list[int] = []
    both = logs.read([path], processes=2, progress=told.append)
    assert difference(whole.events, both.events) == ""
    assert both.coverage == whole.coverage
    assert both.meta["fingerprints"] == whole.meta["fingerprints"]
    assert sum(told) == len(TEXT) * 3
