"""Logs that something wrapped at a width say what they said, on the same lines."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dsprof import grammar, logs
from dsprof.logs import Reader
from dsprof.logs.scanning import ranges
from dsprof.logs.sources.hard_wraps import HEAD, Unwrapped, Wrap, wrap_of
from dsprof.logs.sources.source import Source, is_plain
from dsprof.run import Run, load
from tests.loaded import loaded
from tests.logs.reading import PFX, STEP, TIMERS, difference, read, rows

ROOT = Path(__file__).parents[3]
SAMPLES = sorted((ROOT / "sample_logs").glob("*.log"))
CORPUS = sorted((ROOT.parent / "shared" / "corpus").glob("*.log"))
WIDTHS = (80, 100, 120, 200)
#: Logs long enough that their lines are cut at three places at least, at each width.
WRAPPED = [
    *(ROOT / "sample_logs" / f"{name}.log" for name in ("neox_pipeline_2023", "pipeline_0.16.9")),
    *(ROOT / "sample_logs" / f"zero2_accumulation_{version}.log" for version in ("0.16.9",)),
    *(ROOT / "sample_logs" / f"{name}_0.19.8.log" for name in ("straggler", "zero3_offload")),
    *(log for log in CORPUS if log.name[:2] in ("01", "06", "07", "16")),
]
JUDGED = [log for log in WRAPPED if log.name[:4] in ("neox", "pipe", "01_d", "07_m")]


def wrapped(lines: Sequence[bytes], width: int) -> list[list[bytes]]:
    """What `fold -b` makes of each line."""
    return [[line[at : at + width] for at in range(0, max(len(line), 1), width)] for line in lines]


def folded(text: bytes, width: int, end: bytes = b"\n") -> bytes:
    return end.join(part for parts in wrapped(text.split(b"\n"), width) for part in parts)


def wrapped_at_blanks(lines: Sequence[bytes], width: int) -> list[list[bytes]]:
    """What `fold -s` makes of each line."""
    made = []
    for line in lines:
        parts = [line]
        while len(parts[-1]) > width:
            cut = parts[-1].rfind(b" ", 0, width) + 1 or width
            parts[-1:] = parts[-1][:cut], parts[-1][cut:]
        made.append(parts)
    return made


def folded_at_blanks(text: bytes, width: int) -> bytes:
    lines = wrapped_at_blanks(text.split(b"\n"), width)
    return b"\n".join(part for parts in lines for part in parts)


@cache
def told(log: Path) -> pa.Table:
    return read(log.read_bytes()).events


#: Each log at each width; of two that are side by side one is wrapped at blanks.
WAYS = [
    (log, width, (wrapped, wrapped_at_blanks)[(i + j) % 2])
    for i, log in enumerate(WRAPPED)
    for j, width in enumerate(WIDTHS)
]


def by_turns(these: Sequence[Any], ways: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Each of these in one of the ways, each way with one after the other."""
    return [(one, ways[at % len(ways)]) for at, one in enumerate(these)]


@pytest.mark.parametrize(("log", "width", "wrap"), WAYS, ids=lambda one: getattr(one, "stem", None))
def test_a_wrapped_log_says_what_it_said_on_the_same_lines(
    log: Path, width: int, wrap: Callable[[Sequence[bytes], int], list[list[bytes]]]
) -> None:
    lines = log.read_bytes().split(b"\n")
    parts = wrap(lines, width)
    first = [1, *accumulate((len(part) for part in parts), initial=1)]
    events = told(log)
    moved = pa.array([first[line] if line else line for line in events["line"].to_pylist()])
    place = events.schema.get_field_index("line")
    moved_events = events.set_column(place, events.schema.field(place), moved.cast("int64"))
    again = read(b"\n".join(part for some in parts for part in some))
    assert difference(moved_events, again.events) == ""
    assert again.coverage.lines == sum(map(len, parts)) - 1


@pytest.mark.parametrize(
    ("log", "fold"),
    by_turns(JUDGED, [folded, folded_at_blanks]),
    ids=lambda one: getattr(one, "stem", None),
)
def test_a_wrapped_log_has_the_verdict_of_the_whole_one(
    log: Path, fold: Callable[[bytes, int], bytes], tmp_path: Path
) -> None:
    """At every width its events are those of the whole one, as the test before shows: here, those
    of a file lead to the same verdict, though on other lines."""
    path = tmp_path / log.name
    path.write_bytes(fold(log.read_bytes(), WIDTHS[0]))
    assert verdict(load(path)) == verdict(loaded(log))


def without_blanks(text: bytes) -> bytes:
    """As after copying from a terminal or a page: lines end with no blank."""
    return b"\n".join(line.rstrip(b" ") for line in text.split(b"\n"))


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("zero2_accumulation_0.16.9", 80),
        ("killed_rank_0.19.8", 100),
        *(("zero3_0.19.8", width) for width in (80, 100, 120)),
    ],
)
def test_a_log_whose_cuts_lost_their_blanks_has_the_verdict_of_the_whole_one(
    name: str, width: int, tmp_path: Path
) -> None:
    log = ROOT / "sample_logs" / f"{name}.log"
    path = tmp_path / log.name
    path.write_bytes(without_blanks(folded_at_blanks(log.read_bytes(), width)))
    assert verdict(load(path)) == verdict(loaded(log))


@pytest.mark.parametrize(
    ("name", "width"),
    by_turns(
        [
            "comms_verbose_0.16.9", "csv_monitor_0.16.9", "pipeline_0.16.9",
            "zero2_accumulation_0.16.9", "zero3_offload_0.19.8",
        ],
        [80, 100, 120],
    ),
)  # fmt: skip
def test_a_copy_of_a_terminal_that_ends_no_line_with_a_blank_has_the_verdict_of_the_log(
    name: str, width: int, tmp_path: Path
) -> None:
    log = ROOT / "sample_logs" / f"{name}.log"
    path = tmp_path / log.name
    path.write_bytes(without_blanks(folded(log.read_bytes(), width)))
    assert verdict(load(path)) == verdict(loaded(log))


@pytest.mark.parametrize("log", [*SAMPLES, *CORPUS], ids=lambda log: log.stem)
def test_no_real_log_without_blanks_at_its_ends_is_taken_for_a_wrapped_one(log: Path) -> None:
    assert wrap_of(without_blanks(log.read_bytes())[:HEAD]) is None


def verdict(run: Run) -> list[tuple[Any, ...]]:
    return [(f.rule, f.severity, f.confidence, f.title) for f in run.findings]


@pytest.mark.parametrize("log", [*SAMPLES, *CORPUS], ids=lambda log: log.stem)
def test_no_real_log_is_taken_for_a_wrapped_one(log: Path) -> None:
    assert wrap_of(log.read_bytes()[:HEAD]) is None


LINES = {
    "lines of one length": [PFX + TIMERS, b"steps: 1 loss: 2.0"] * 40,
    "counts between lines of one length": [
        line for n in range(7) for line in (PFX + TIMERS, b"%d" % (4100 + 377 * n))
    ],
    "a table": [b"+------+--------+" * 5, b"| size |  count |" * 5] * 40 + [b"total 3"],
    "rows that are filled up": [
        key.ljust(72) + value.ljust(8)
        for key, value in (
            (b"world size:", b"3"),
            (b"data parallel size:", b"3"),
            (b"params per GPU:", b"61.25 M"),
            (b"params of model = params per GPU * mp_size:", b"61.25 M"),
            (b"fwd MACs per GPU:", b"191.5 GMACs"),
            (b"fwd flops of model = fwd flops per GPU * mp_size:", b"383.0 G"),
            (b"fwd latency:", b"60 ms"),
            (b"fwd FLOPS per GPU = fwd flops per GPU / fwd latency:", b"6.38 TFLOPS"),
            (b"step latency:", b"140 ms"),
            (b"FLOPS per GPU = 3 * fwd flops per GPU / iter latency:", b"2.35 TFLOPS"),
            (b"samples/second:", b"196.75"),
        )
    ],
    "rows of numbers": [b"%-60d%12.2f" % (n, n) for n in range(300)],
    "separators": [b"=" * 80, b"epoch 1", b"-" * 80, b"loss 2.5", b"*" * 80, b"done"] * 20,
    "bars": [b"%3d%%|%-70s| %3d/999" % (n, b"#" * n, n) for n in range(70)],
    "lines that end with a blank": [
        PFX + b"iteration %8d/ 9999 | loss: 1.25 | grad norm: 0.500 | " % n + behind
        for n in range(60)
        for behind in (b"\ntime (ms)", b"\nsaving", b"\nvalidation", b"\n |")
    ],
    "notes": [
        b"Your compiler (c++) is not compatible with the compiler Pytorch was built with",
        b"for this platform, which is g++ on linux",
    ]
    * 30,
}


@pytest.mark.parametrize("kind", LINES)
def test_lines_that_are_merely_of_one_length_are_not_joined(kind: str) -> None:
    assert wrap_of(b"\n".join([*LINES[kind], b""])) is None


def test_a_number_that_is_cut_at_one_place_each_time_tells_as_much_as_cuts_at_several() -> None:
    lines = [PFX + b"epoch %d, elapsed time per iteration (ms): 1234.5 |" % n for n in range(1, 9)]
    cut = lines[0].index(b"34.5")
    assert wrap_of(b"".join(folded(line, cut) + b"\n" for line in lines)) is not None
    apart = lines[0].index(b" |")  # not cut: what follows is another number
    plain = b"".join(line[:apart] + b"\n.5 samples\n" for line in lines)
    assert wrap_of(plain) is None


def test_many_cuts_at_two_places_tell_where_a_rest_begins_as_no_line_does() -> None:
    """As torchrun's agent ends the other processes, in a copy of a terminal."""
    ends = [
        b"W0101 torch/elastic/api.py:897] Sending process 41%d2 closing signal SIGTERM" % i
        for i in range(6)
    ]
    cut = ends[0].index(b"GTERM")
    before = b"".join(folded(line, cut) + b"\n" for line in ends)
    failed = b"E0101 api.py:869] failed (exitcode: -6) local_rank: 6 (pid".rjust(cut, b"/")
    assert wrap_of(before + failed + b"\n: 4132) of binary: /usr/bin/python\n") is not None
    assert wrap_of(before + failed + b"\nexit code 1\n") is None  # lines that people wrapped


def test_a_line_behind_one_of_the_width_begins_anew_with_the_time_of_day_as_others_do() -> None:
    lines = [
        b"02:1%d:20 SUCCESS Step %d | Time: 61.25s | Reward: 0.375 | Tokens: 2400.5 | Is: 0\n"
        b"02:1%d:20    INFO Starting step %d\nGenerating: 100%%|###| 8/8 [00:0%d<00:00]\n"
        % (i, 14 + i, i, 15 + i, i)
        for i in range(6)
    ]
    assert wrap_of(b"".join(lines)) is None


def test_two_cuts_through_keys_of_pairs_tell_that_few_lines_were_wrapped() -> None:
    one, two = (
        PFX + b"time (ms) | fwd: %d.25 | bwd: 9.50 | bwd_inner: 8.25 | step: 1.50" % n
        for n in (4, 5)
    )
    at = one.index(b"_inner")
    wrapped = [folded(line, at) + b"\n" for line in (one, two)]
    found = wrap_of(b"".join([*wrapped, b"Traceback (most recent call last):\n"]))
    assert found is not None
    assert found.width == at
    assert wrap_of(wrapped[0] + b"steps: 1 loss: 2.0\n") is None  # one may be by chance
    whole = PFX + b"time (ms) | fwd: 4.25 | bwd: 9.50\nloss: 2.5\n"  # of keys that lost nothing
    assert wrap_of(whole * 2) is None


@pytest.mark.parametrize("stamp", [b"2026-11-21 10:00:0%d.123 | ", b"[2026-11-21T10:00:0%d] "])
def test_a_line_that_begins_with_its_time_goes_on_with_none(stamp: bytes) -> None:
    step = b"[2026-11-21 10:00:0%d,100] [INFO] time (ms) | fwd: 410.25 | bwd: 1190.50 | step: 90.25"
    lines = (step % n + b"\n" + stamp % n + b"step %d | loss 1.5\n" % n for n in range(1, 9))
    assert wrap_of(b"".join(lines)) is None


def log_of(steps: int) -> bytes:
    lines = (
        (PFX + STEP % n, PFX + TIMERS.replace(b"10.", b"%d." % n)) for n in range(1, 1 + steps)
    )
    return b"".join(b"".join(line + b"\n" for line in some) for some in lines)


TEXT = log_of(800)
FOLDED = folded(TEXT, 70)


def test_a_wrapped_log_is_read_alike_however_its_bytes_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read(FOLDED).events
    assert len(FOLDED) > 2 * HEAD
    assert whole.num_rows == read(TEXT).events.num_rows
    path, packed = tmp_path / "run.log", tmp_path / "run.log.gz"
    path.write_bytes(FOLDED)
    packed.write_bytes(gzip.compress(FOLDED))
    monkeypatch.setattr(logs, "_SHARE", 1)
    monkeypatch.setattr(ranges, "_SIZE", 1 << 12)
    for size in (1 << 10, 4099, HEAD - 1, HEAD + 1):
        assert difference(whole, read(FOLDED, [size] * (len(FOLDED) // size)).events) == ""
    for source in (path, packed):
        for processes in (1, 2):
            events = logs.read([source], processes=processes).events
            assert difference(whole, events) == "", (source, processes)
    assert not is_plain(str(path))


def test_what_is_held_back_of_a_growing_log_is_told_when_asked() -> None:
    reader = Reader(grammar.builtin(), Source("run.log"))
    for at in range(0, len(FOLDED), 1 << 14):
        reader.feed(FOLDED[at : at + (1 << 14)])
        so_far = FOLDED[: at + (1 << 14)]
        if at > 1 << 14:
            rest = so_far[so_far.rfind(b"[2024") :]  # a record that may go on
            whole = read(so_far.removesuffix(rest)).events
            now = reader.log().events
            assert difference(whole, now.slice(0, len(whole))) == ""
    reader.finish()
    assert difference(read(FOLDED).events, reader.log().events) == ""


@pytest.mark.parametrize("width", [90, 120])
def test_a_copy_of_a_screen_whose_lines_are_filled_up_says_what_the_log_said(width: int) -> None:
    lines = folded(TEXT, width).split(b"\n")
    filled = b"\n".join(line.ljust(width) for line in lines)
    whole, copy = rows(TEXT, kind="phase"), rows(filled, kind="phase")
    assert [(row["name"], row["step"], row["seconds"]) for row in copy] == [
        (row["name"], row["step"], row["seconds"]) for row in whole
    ]


def test_lines_that_are_filled_up_and_were_cut_nowhere_are_not_joined() -> None:
    filled = b"".join(line.ljust(200) + b"\n" for line in TEXT.splitlines())
    assert wrap_of(filled[:HEAD]) is None


def test_windows_line_ends_and_letters_of_several_bytes_are_no_obstacle() -> None:
    plain = [(row["name"], row["step"], row["seconds"]) for row in rows(TEXT)]
    windows = folded(TEXT, 70, b"\r\n")
    assert [(row["name"], row["step"], row["seconds"]) for row in rows(windows)] == plain
    bars = "".join(f"█{line}\n" for line in TEXT.decode().splitlines())
    columns = [line[at : at + 70] for line in bars.splitlines() for at in range(0, len(line), 70)]
    for text in ("\n".join(columns).encode(), folded(bars.encode(), 70)):
        assert [(row["name"], row["step"], row["seconds"]) for row in rows(text)] == plain


def test_a_last_line_that_reaches_the_width_may_go_on() -> None:
    last = b"time (ms) | fwd: 10.00 | bwd: 20.50 | step: 12345678"
    cut = PFX + b" " * (140 - len(PFX) - len(last)) + last
    names = [row["name"] for row in rows(FOLDED + b"\n" + folded(cut, 70) + b"\n")]
    assert names[-2:] == ["forward", "backward"]


WRAP = Wrap(8, frozenset({b"[0] step"}), 8)


def joined(*lines: bytes) -> bytes:
    unwrapped = Unwrapped(WRAP)
    return b"".join(map(unwrapped.line, lines)) + unwrapped.rest()


def test_a_full_line_goes_on_with_the_next_unless_that_begins_as_others_do() -> None:
    assert joined(b"[1] step\n", b"=3\n", b"end\n") == b"[1] step=3\n\nend\n"
    assert joined(b"[1] step\n", b"[2] step\n", b"=3\n") == b"[1] step\n[2] step=3\n\n"
    assert joined(b"[1] step\n", b"\n", b"end\n") == b"[1] step\n\nend\n"
    assert joined(b"[1] step\n", b"=3456789\n", b"0") == b"[1] step=34567890"


def test_a_longer_line_shows_that_what_follows_was_not_wrapped() -> None:
    lines = (b"[1] step\n", b"[1] steps=3\n", b"[1] step\n", b"=3\n")
    assert joined(*lines) == b"".join(lines)


def test_a_line_cut_at_a_blank_goes_on_with_a_word_that_had_no_room() -> None:
    wrap = Wrap(60, frozenset({b"all_gather\n", b"all_gather"}), 62, at_blanks=True)
    line = PFX[:50] + b"fwd: "  # 55 columns
    assert wrap.may_go_on(line)
    assert not wrap.may_go_on(line.rstrip())
    assert wrap.goes_on(line, b"123.45 | bwd: 2.5")
    assert not wrap.goes_on(line, b"1.45 | bwd: 2.5")  # had room
    assert not wrap.goes_on(line, b"[2024-11-21 10:00:00,123] [INFO]")
    assert not wrap.goes_on(line[:-2] + b"| ", b"all_gather")  # as others begin
    assert wrap.goes_on(line, b"all_gather")  # but no line ends with a key
    row = b"        1.5 MB        40        5128.0        128.2         "
    assert wrap.goes_on(row, b"0.21    ")
    assert not wrap.goes_on(row, b"broadcast")


def test_lines_cut_at_blanks_tell_the_width_that_they_may_have() -> None:
    lines = [PFX + TIMERS.replace(b"10.", b"%d." % 10**n) for n in range(6)]
    wrap = wrap_of(folded_at_blanks(b"\n".join(lines * 3), 90) + b"\n")
    assert wrap is not None
    assert wrap.at_blanks
    assert wrap.width <= 90 <= wrap.widest


def test_a_line_that_never_ends_is_told_in_parts() -> None:
    text = joined(*[b"12345678\n"] * 10_000)
    assert text.count(b"\n") == 10_000 - text[::-1].find(b"\n") // 8
    assert max(map(len, text.split(b"\n"))) < 1 << 15


def test_a_log_that_was_wrapped_is_said_to_have_been(tmp_path: Path) -> None:
    text = (ROOT / "sample_logs" / "neox_pipeline_2023.log").read_bytes()
    log = tmp_path / "wrapped.log"
    log.write_bytes(folded(text, 120))
    (repair,) = load(log).repairs.query("name == 'wrapped-lines'").to_dict("records")
    assert "120 columns" in repair["text"]
    assert repair["rows"] == len(folded(text, 120).split(b"\n")) - len(text.split(b"\n"))
    assert repair["line"] == next(i for i, one in enumerate(text.split(b"\n"), 1) if len(one) > 120)
    log.write_bytes(text)
    assert load(log).repairs.query("name == 'wrapped-lines'").empty
