"""Lines as terminals, launchers and accidents leave them."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable

import pytest

from dsprof import grammar
from dsprof.logs import Reader
from dsprof.logs.sources.source import Source
from tests.logs.reading import PFX, STEP, TIMERS, read, rows

BAR = b"\r  3%|###       | 15/500 [00:30<16:10,  2.00s/it]"
LOSS = b"{'loss': 1.25, 'learning_rate': 2e-05, 'epoch': 0.03}"
PHASES = {"forward": 0.01, "backward": 0.0205, "step": 0.00125}


def steps(text: bytes) -> list[int]:
    return [row["step"] for row in rows(text, name="skipped")]


def phases(text: bytes) -> dict[str, float]:
    return {row["name"]: row["seconds"] for row in rows(text, kind="phase")}


def test_a_record_glued_behind_a_progress_bar_is_found() -> None:
    assert [r["value"] for r in rows(BAR + LOSS + b"\n", name="loss")] == [1.25]
    assert steps(BAR + PFX + STEP % 4 + b"\n") == [4]


def test_a_progress_bar_numbers_the_record_behind_it() -> None:
    bars = [BAR.replace(b"15/500", b"%d/500" % n) for n in (15, 16, 17)]
    text = b"".join(bar + LOSS + b"\n" for bar in bars)
    assert [row["step"] for row in rows(text, name="loss")] == [15, 16, 17]


def test_blanks_that_overwrite_a_bar_are_no_part_of_a_value() -> None:
    (row,) = rows(BAR + b"\r" + b" " * 80 + b"\r" + LOSS + b" " * 40 + b"\n", name="epoch")
    assert row["value"] == 0.03


def test_records_between_carriage_returns_on_one_line_are_all_found() -> None:
    assert steps(b"\r".join(PFX + STEP % n for n in range(1, 9)) + b"\n") == [*range(1, 9)]


def test_two_records_spliced_into_one_line_are_both_found() -> None:
    text = PFX + STEP % 5 + PFX + TIMERS + b"\n"
    assert steps(text) == [5]
    assert phases(text).items() >= PHASES.items()


def test_a_header_cut_into_the_middle_of_a_record_ends_it() -> None:
    text = PFX + TIMERS[:40] + PFX + STEP % 6 + b"\n"
    assert steps(text) == [6]
    assert phases(text)["forward"] == 0.01


def test_the_second_record_of_a_line_has_the_rank_of_its_own_header() -> None:
    text = PFX + STEP % 5 + PFX.replace(b"Rank 0", b"Rank 3") + TIMERS + b"\n"
    assert {row["rank"] for row in rows(text, kind="phase")} == {3}
    assert {row["rank"] for row in rows(text, name="skipped")} == {0}


def test_bytes_that_are_no_text_harm_nothing() -> None:
    text = b"\xff\xfe\x00\x00 junk \xe2\x96\n" + PFX + STEP % 3 + b"\xff\n\x00\x00"
    assert steps(text) == [3]
    assert steps(b"\x00" * 5000 + PFX + STEP % 3 + b"\n") == [3]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace(b"\n", b"\x00\n"),
        lambda text: text.replace(b"\n", b"\x00\x00\r\n"),
        lambda text: text.replace(b"\n", b"\n" + bytes(700)),
        lambda text: text.replace(b" | ", b"\x00 |\x00 "),
        lambda text: b"\x00".join(text[i : i + 1] for i in range(len(text))),
        lambda text: text.decode().encode("utf-16"),
    ],
    ids=["line ends", "dos line ends", "a crash", "separators", "everywhere", "utf-16"],
)
def test_nul_bytes_are_nothing(spoil: Callable[[bytes], bytes]) -> None:
    text = b"".join(PFX + STEP % n + b"\n" + PFX + TIMERS + b"\n" for n in range(1, 4))
    assert read(spoil(text)).events.to_pylist() == read(text).events.to_pylist()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("portion", [1, 7, 1 << 20])
def test_what_powershell_redirects_is_read_with_its_letters(encoding: str, portion: int) -> None:
    text = "Traceback (most recent call last):\n  File 'a'\nOSError: 'Größe/数据.bin' \U0001f4a5\n"
    data = f"\ufeff{text}".replace("\n", "\r\n").encode(encoding)
    assert (
        read(data, [portion] * len(data)).events.to_pylist()
        == read(text.encode()).events.to_pylist()
    )
    (row,) = rows(data, kind="problem")
    assert row["text"] == "OSError: 'Größe/数据.bin' \U0001f4a5"


def test_nul_bytes_before_a_container_log_do_not_hide_it() -> None:
    text = b'{"log":"' + TIMERS + b'\\n","stream":"stderr","time":"2024-01-02T03:04:05.1Z"}\n'
    for spoilt in (bytes(900) + text, text + bytes(900) + text):
        assert phases(spoilt) == phases(text) != {}
        assert {row["line"] for row in rows(spoilt, raw="step")} <= {1, 2}


def test_windows_line_ends_change_nothing() -> None:
    text = b"".join(PFX + STEP % n + b"\n" + PFX + TIMERS + b"\n" for n in range(1, 4))
    unix, dos = read(text).events.to_pylist(), read(text.replace(b"\n", b"\r\n")).events.to_pylist()
    assert unix == dos


def test_a_value_broken_by_a_hard_wrap_is_joined() -> None:
    (row,) = rows(PFX + b"step=10, skipped=4, lr=[0.00015], mom=[[0\n.9, 0.999]]\n", name="skipped")
    assert (row["step"], row["value"], row["line"]) == (10, 4, 1)
    # Only a bracket that is open says that the line goes on.
    assert rows(PFX + b"step=1\n0, skipped=4\n", name="skipped") == []


def test_a_last_line_that_is_cut_gives_what_is_there() -> None:
    assert steps(PFX + STEP % 1 + b"\n" + PFX + b"step=2, skipped=0,") == [1, 2]
    assert steps(PFX + STEP % 1 + b"\n" + PFX + b"step=2, skipped=0") == [1]
    assert steps(PFX + STEP % 1 + b"\n" + PFX + b"step=2, skip") == [1]
    assert phases(PFX + TIMERS[:32]) == {"forward": 0.01}
    assert phases(PFX + TIMERS[:35]) == {"forward": 0.01, "backward": 0.0205}


@pytest.mark.parametrize("filler", [b"x", b" ", b"|", b"[", b"\x00", b"a: 1.5 | "])
def test_a_line_of_tens_of_megabytes_needs_bounded_memory(filler: bytes) -> None:
    reader = Reader(grammar.builtin(), Source("run.log"))
    portion = filler * (262_144 // len(filler))
    reader.feed(PFX + STEP % 1 + b"\n")
    tracemalloc.start()
    for _ in range(40_000_000 // len(portion)):
        reader.feed(portion)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    reader.feed(b"\n" + PFX + STEP % 2 + b"\n")
    reader.finish()
    events = reader.log().events.to_pylist()
    assert [row["step"] for row in events if row["name"] == "skipped"] == [1, 2]
    assert peak < 16e6


def test_records_of_an_endless_line_are_not_cut() -> None:
    count = 30_000  # some megabytes: cut in several places
    text = b" ".join(PFX + STEP % n for n in range(1, count + 1))
    assert len(text) > 3 << 20
    found = [
        r["step"] for r in read(text, [100_003] * 40).events.to_pylist() if r["name"] == "skipped"
    ]
    assert found == [*range(1, count + 1)]


def test_script_tags_and_templates_are_only_text() -> None:
    evil = b"<script>alert(1)</script> {{7*7}} ${x} \x1b]0;title\x07"
    text = PFX + b"[deepspeed] OVERFLOW! " + evil + b"\n" + PFX + STEP % 1 + b" " + evil + b"\n"
    assert steps(text) == [1]


def test_a_number_of_ten_thousand_digits_is_no_number() -> None:
    digits = b"9" * 10_000
    text = PFX + b"step=" + digits + b", skipped=" + digits + b", lr=[" + digits + b"]\n"
    text += PFX + b"time (ms) | fwd: " + digits + b" | bwd: 2.00\n" + PFX + STEP % 5 + b"\n"
    assert steps(text)[-1] == 5
    assert phases(text)["backward"] == 0.002


ODD_NUMBERS = [
    b"9" * 10_000,
    b"1" * 21,
    b"0." + b"1" * 5000,
    b"1e999",
    b"-1e999",
    b"1e-999",
    b"nan",
    b"inf",
    b"1e308",
]
WITH_NUMBERS = [
    PFX + b"step=20, skipped=%s, lr=[%s], mom=[(%s, 0.9)]\n",
    PFX + b"step=%s, skipped=1, lr=[0.1]\n",
    PFX + b"time (ms) | fwd: %s | bwd: 2.00 | step: %s\n",
    b"[rank%s]: time (ms) | fwd: 1.00 | bwd: 2.00 | step: 1.00\n",
    b"{'loss': %s, 'grad_norm': %s, 'epoch': %s}\n",
    b" 3%%|#  | %s/%s [00:30<16:10,  2.00s/it]{'loss': 1.25, 'epoch': 0.03}\n",
    b" iteration  %s/ %s | elapsed time per iteration (ms): %s | lm loss: %s |\n",
    b"steps: %s loss: %s iter time (s): %s samples/sec: %s\n",
    b"%%comms: %s \n %%optimizer_step %s \n %%forward: %s \n %%backward: %s\n",
    b"MA %s GB         Max_MA %s GB         CA 1 GB         Max_CA 3 GB\n",
    b"  Num examples = %s\n  Num Epochs = %s\n  Total optimization steps = %s\n",
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", ODD_NUMBERS, ids=[n[:8].decode() for n in ODD_NUMBERS])
def test_a_number_without_measure_is_unknown_unless_it_is_spelt_out(number: bytes) -> None:
    around = b"".join(PFX + STEP % n + b"\n" + PFX + TIMERS + b"\n" for n in (1, 2))
    for line in WITH_NUMBERS:
        count = line.replace(b"%%", b"").count(b"%s")
        events = read(around + line % ((number,) * count) + around).events.to_pylist()
        measures = [row[c] for row in events for c in ("seconds", "bytes", "count", "value")]
        wild = [m for m in measures if m is not None and not math.isfinite(m)]
        assert not wild or number in (b"nan", b"inf")
        assert all(row["rank"] in (0, None) for row in events)


def test_lines_are_numbered_as_an_editor_does() -> None:
    text = b"\n\nnoise\r\n" + BAR + b"\n" + PFX + STEP % 1 + b"\n\x0b\x0c\n" + PFX + STEP % 2
    assert [row["line"] for row in rows(text, name="skipped")] == [5, 7]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", 0),
        (b"a\n", 1),
        (b"a\nb", 2),
        (b"a\r\nb\r\n", 2),
        (b"a\rb\rc", 3),
        (b"a\rb\r", 2),
        (b"a\rb\n", 1),
        (b"a" * 300_000 + b"\r" + b"b" * 300_000, 2),
    ],
)
def test_a_last_line_without_an_end_is_one_as_are_those_that_end_as_bars_do(
    text: bytes, lines: int
) -> None:
    assert read(text).coverage.lines == lines
