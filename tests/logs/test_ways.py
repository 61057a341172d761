"""One log, many ways to read it: the events are the same."""

from __future__ import annotations

import builtins
import bz2
import gzip
import lzma
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dsprof import grammar, logs
from dsprof.logs.scanning import search
from dsprof.logs.sources.source import Source
from tests.logs.reading import PFX, STEP, TIMERS, difference, read

TABLE = (
    b"Comm. Op            Message Size        Count               Total Latency(ms)   "
    b"Avg Latency(ms)     tput_avg (Gbps)     busbw_avg (Gbps)    \n"
    b"all_reduce\n"
    b"                    1.52 MB             40                  2055.10             "
    b"51.38               0.50                0.25                \n"
    b"broadcast\n"
    b"                    8.0 KB              6                   1.85                "
    b"0.31                0.43                0.41                \n"
)
BAR = b"\r  3%%|###       | %d/500 [00:30<16:10,  2.00s/it]"


def _text(steps: int) -> bytes:
    """A log with every means of confusion that this project knows."""
    chance = random.Random(3)
    parts = []
    for step in range(1, steps + 1):
        parts += [b"worker-%d: " % chance.randrange(3) + PFX + STEP % step + b"\n"]
        parts += [PFX + TIMERS + b"\n", b"[Rank 1] " + TIMERS + b"\n"]
        if step % 3 == 0:
            parts += [
                BAR % (step - 1),
                BAR % step,
                b"{'loss': 1.%d, 'epoch': 0.%d}\n" % (step, step),
            ]
        if step % 5 == 0:
            parts += [TABLE.replace(b"1.52", b"1.%d" % step), b"noise a: 1.5 x\n"]
            parts += [TABLE.replace(b"broadcast", PFX + STEP % step), BAR % step, b"\n"]
            parts += [PFX + TIMERS + b"\n{'loss': 2.5, 'epoch': 1.0}\n"]
        if step % 7 == 0:
            parts += [b"[rank1]: Traceback (most recent call last):\n[rank0]: other\n"]
            parts += [b'[rank1]:   File "x.py", line 1\n[rank1]: ValueError: no %d\n' % step]
        if step % 4 == 0:
            parts += [b"\x1b[32m" + PFX + STEP % step + PFX + TIMERS + b"\xff\xfe\r\n", b"\x00\n"]
        if step % 6 == 0:
            parts += [b"W0315 05:58:21.685000 31 torch/x.py:10] " + STEP % step + b"\n"]
    return b"".join(parts)


TEXT = _text(60)
WHOLE = read(TEXT)

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


@pytest.mark.parametrize("form", [*PACKERS])
def test_a_compressed_log_gives_the_events_of_the_plain_one(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"run.log.{form}"
    path.write_bytes(PACKERS[form](TEXT))
    assert difference(WHOLE.events, logs.read([path]).events) == ""


def test_archives_glued_together_are_read_to_the_end(tmp_path: Path) -> None:
    half = TEXT.index(b"\n", len(TEXT) // 2) + 1
    path = tmp_path / "run.log.gz"
    path.write_bytes(gzip.compress(TEXT[:half]) + gzip.compress(TEXT[half:]))
    assert difference(WHOLE.events, logs.read([path]).events) == ""


def test_many_files_shared_by_two_processes_give_the_events_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(5):
        (tmp_path / f"run_rank{rank}.log").write_bytes(_text(3 + rank))
    (tmp_path / "run_rank5.log.gz").write_bytes(gzip.compress(_text(7)))
    (tmp_path / "run_rank6.log.gz").write_bytes(gzip.compress(_text(7))[:-20])
    one = logs.read([tmp_path])
    monkeypatch.setattr(logs, "_SHARE", 1)
    both = logs.read([tmp_path], processes=2)
    assert difference(one.events, both.events) == ""
    assert both.coverage == one.coverage
    assert both.meta == one.meta
    assert len(both.meta["faults"]) == 1


@settings(max_examples=60)
@given(st.lists(st.one_of(st.integers(0, 20), st.integers(0, 3000)), max_size=40))
def test_a_growing_log_gives_the_events_of_the_whole(portions: list[int]) -> None:
    assert difference(WHOLE.events, read(TEXT, portions).events) == ""


def test_byte_by_byte_gives_the_events_of_the_whole() -> None:
    text = _text(8)
    assert difference(read(text).events, read(text, [1] * len(text)).events) == ""


def test_records_too_many_for_one_batch_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    from dsprof.logs.scanning import records

    monkeypatch.setattr(records, "_BATCH", 1)
    lines = [len(line) for line in TEXT.splitlines(keepends=True)]
    assert difference(WHOLE.events, read(TEXT, lines).events) == ""


def test_looking_at_a_growing_log_does_not_change_what_it_will_say() -> None:
    reader = logs.Reader(grammar.builtin(), Source("run.log"))
    for at in range(0, len(TEXT), 997):
        reader.feed(TEXT[at : at + 997])
        reader.log()
    reader.finish()
    assert difference(WHOLE.events, reader.log().events) == ""


def test_without_the_vectorised_searcher_the_events_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **more: Any) -> Any:
        if name == "hyperscan":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.setattr(search, "_MADE", {})
    assert "_search_each" in search.search_of(grammar.builtin())._find.__qualname__
    assert difference(WHOLE.events, read(TEXT).events) == ""
