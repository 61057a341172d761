"""Logs that end in the middle of a line: what is there counts, what may go on does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsprof import grammar
from dsprof.grammar import Pairs
from dsprof.logs import Reader
from dsprof.logs.scanning.torn import CUT_SHORT, stop_short, stops_short, whole_pairs
from dsprof.logs.sources.source import Source
from tests.logs.reading import PFX, STEP, TIMERS, read, rows

ENGINE = PFX + b"step=30, skipped=12, lr=[0.00125], mom=[(0.95, 0.999)]"
PIPE = b"steps: 30 loss: 2.1340 iter time (s): 1.532 samples/sec: 20.887"
MEGATRON = (
    b" iteration      120/    5000 | consumed samples:         2560 | "
    b"elapsed time per iteration (ms): 1830.5 | learning rate: 2.400E-05 | lm loss: 9.125000E+00 |"
)
TRAINER = b"{'loss': 2.1345, 'grad_norm': 17.525, 'learning_rate': 1.75e-06, 'epoch': 0.9722}"
QUOTED = b"{'loss': '3.544', 'grad_norm': '17.5',  'learning_rate': '1.703e-06', 'epoch': '0.9722'}"
PERCENT = b"%comms: 76.25213116021334 \n %optimizer_step 2.85 \n %forward: 6.07 \n %backward: 16.76"
THROUGHPUT = (
    PFX + b"epoch=0/micro_step=20/global_step=30, RunningAvgSamplesPerSec=31.25, "
    b"CurrSamplesPerSec=33.75, MemAllocated=1.25GB, MaxMemAllocated=12.75GB"
)
CHAT = b"Epoch: 0 | Step: 120 | PPO Epoch: 1 | Actor Loss: 0.25 | Critic Loss: 0.125 | "
CHAT += b"Unsupervised Loss: 0.0"

LINES = {
    "timers": PFX + TIMERS,
    "bare timers": TIMERS,
    "engine": ENGINE,
    "pipeline": PIPE,
    "megatron": MEGATRON,
    "trainer": TRAINER,
    "quoted trainer": QUOTED,
    "percentages": PERCENT,
    "throughput": THROUGHPUT,
    "chat": CHAT,
}


def ends(line: bytes) -> Iterator[int]:
    """Where a line may end: in every way but between letters of a word that has two on each side,
    and within the header that only one of these lines has to show."""
    begin = len(PFX) if line.startswith(PFX) and line is not ENGINE else 0
    for end in range(begin, len(line)):
        around = line[max(end - 2, 0) : end + 2]
        if not (len(around) == 4 and around.isalpha()):
            yield end


Facts = dict[tuple[str, str], tuple[object, ...]]


def facts(text: bytes, after: int = 0) -> Facts:
    """What lines behind one say of each name; without the note that a record lost its end."""
    return {
        (row["kind"], row["name"]): (
            row["step"],
            row["seconds"],
            row["bytes"],
            row["value"],
            None if row["text"] == CUT_SHORT else row["text"],
        )
        for row in rows(text)
        if row["kind"] != "problem" and row["line"] > after
    }


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_wherever_a_log_ends_nothing_is_said_that_the_whole_line_does_not_say(line: bytes) -> None:
    before = PFX + STEP % 29 + b"\n" + PFX + TIMERS + b"\n"
    whole = facts(before + line + b"\n", after=2)
    for end in ends(line):
        said = facts(before + line[:end], after=2)
        wrong = {name: (told, whole.get(name)) for name, told in said.items()}
        assert all(told == true for told, true in wrong.values()), (line[:end], wrong)


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_growing_log_gives_the_whole_value_once_it_is_there(line: bytes) -> None:
    """Whatever of it was looked at before, all the way along the line."""
    whole = facts(line + b"\n")
    reader = Reader(grammar.builtin(), Source("run.log"))
    read_to = 0
    for end in ends(line):
        reader.feed(line[read_to:end])
        reader.log()
        read_to = end
    reader.feed(line[read_to:] + b"\n")
    reader.finish()
    said = reader.log().events.to_pylist()
    assert {(row["kind"], row["name"]) for row in said} == set(whole)
    assert CUT_SHORT not in [row["text"] for row in said]


def test_a_whole_line_that_only_lacks_its_end_loses_nothing() -> None:
    for line in (TIMERS, ENGINE, MEGATRON, TRAINER):
        assert rows(line + b"\n" + line) == rows(line + b"\n" + line + b"\n")


def test_a_value_that_is_closed_is_whole() -> None:
    (row,) = rows(b"{'loss': '3.544', 'epoch': '0.97'", name="epoch")
    assert row["value"] == 0.97
    assert rows(b"{'loss': '3.544', 'epoch': '0.97", name="epoch") == []
    (row,) = rows(PFX + b"step=3, skipped=1, lr=[0.25]", name="lr")
    assert row["value"] == 0.25


def test_a_number_that_may_go_on_is_left_out() -> None:
    assert rows(b"time (ms) | forward: 12.3 | backward: 4", raw="backward") == []
    (row,) = rows(b"time (ms) | forward: 12.3 | backward: 4", raw="forward")
    assert row["seconds"] == 0.0123
    assert rows(PFX + b"step=30, skipped=1", name="skipped") == []
    assert rows(b"%comms: 76.2", kind="metric") == []


def test_a_record_that_lost_timers_says_so() -> None:
    whole = b"".join(PFX + STEP % n + b"\n" + TIMERS + b"\n" for n in (1, 2))
    for cut in (b"bwd: 20", b"bwd_inner: 18.00", b"bwd_allreduce: 2.50", b"| step: 1.2"):
        text = whole + PFX + STEP % 3 + b"\n" + TIMERS[: TIMERS.index(cut) + len(cut)]
        last = [row for row in rows(text, kind="phase") if row["line"] == 6]
        assert {row["text"] for row in last} == {CUT_SHORT}
    assert {row["text"] for row in rows(whole, kind="phase")} == {None}


@pytest.mark.parametrize("end", [b"\n", b" \r\n"])
def test_a_line_that_stops_in_a_timers_name_is_torn_though_it_has_an_end(end: bytes) -> None:
    """A log cut in the middle, to which an editor added the end of the line."""
    line = PFX + TIMERS + b"\n"
    cut = line[: line.index(b"bwd_inner") + 4] + end
    told = [row["text"] for row in rows(line + cut, name="forward")]
    assert told == [None, CUT_SHORT]
    assert [row["text"] for row in rows(line + line, name="forward")] == [None, None]


@pytest.mark.parametrize("end", [b":\n", b": \n"])
def test_a_line_that_stops_before_a_timers_value_is_torn(end: bytes) -> None:
    """As where a log was wrapped at blanks, of which too little shows."""
    line = PFX + TIMERS + b"\n"
    torn = line[: line.index(b"bwd_inner:") + len(b"bwd_inner")] + end
    assert [row["text"] for row in rows(line + torn, name="forward")] == [None, CUT_SHORT]


def test_the_only_timer_line_of_a_log_may_lack_more() -> None:
    assert {row["text"] for row in rows(TIMERS, kind="phase")} == {CUT_SHORT}
    assert {row["text"] for row in rows(TIMERS + b"\n", kind="phase")} == {None}


def test_timers_that_another_record_was_printed_into_say_so() -> None:
    text = PFX + TIMERS + b"\n" + PFX + TIMERS[:40] + PFX + STEP % 6 + b"\n"
    last = {row["name"]: row["text"] for row in rows(text, kind="phase") if row["line"] == 2}
    assert last == {"forward": CUT_SHORT, "backward": CUT_SHORT}


def test_a_step_number_that_may_go_on_is_none() -> None:
    """`step: 12` of `step: 120` would place the record at another step."""
    for end in range(len(CHAT)):
        assert {row["step"] for row in rows(CHAT[:end])} <= {120}


def test_a_problem_is_told_as_far_as_it_goes() -> None:
    told = rows(b"RuntimeError: CUDA out of memory. Tried to allocate 2.0", kind="problem")
    assert len(told) == 1


def test_a_container_log_whose_last_line_has_no_end_is_cut_too() -> None:
    cri = b"2024-01-02T03:04:05.123456789Z stdout %s "
    head = cri % b"F" + TIMERS + b"\n" + cri % b"P"
    (row,) = rows(head + TIMERS[:-1], raw="bwd_inner", line=2)
    assert row["text"] == CUT_SHORT
    assert rows(head + TIMERS[:-1], raw="step", line=2) == []
    assert rows(head + TIMERS[:-1] + b"\n", raw="step", line=2) == []  # a part without its rest
    docker = b'{"log":"' + TIMERS + b'\\n","stream":"stderr","time":"2024-01-02T03:04:05.1Z"}'
    assert [row["text"] for row in rows(docker, raw="step")] == [None]


@pytest.mark.parametrize(
    ("body", "whole"),
    [
        (b" a: 1.50 | b: 2.25", b" a: 1.50 | b: 2.25"),
        (b" a: 1.50 | b: 2.2", b" a: 1.50 "),
        (b" a: 1.50 | b: 22", b" a: 1.50 "),
        (b" a: 1.50 | b: 2.2 ", b" a: 1.50 | b: 2.2 "),
        (b" a: 1.50 | b", b" a: 1.50 "),
        (b" a: 1.50 | ", b" a: 1.50 | "),
        (b" a: 1.5 | b: 1.25 | c: 0.50", b" a: 1.5 | b: 1.25 "),
        (b" a: 1.50", b""),
        (b"", b""),
    ],
)
def test_the_last_pair_counts_if_its_line_shows_that_it_is_whole(body: bytes, whole: bytes) -> None:
    pairs = Pairs(b"|", b":", b"", "phase {key} ms", timers=True)
    assert whole_pairs(body, pairs) == whole


def test_the_text_of_a_log_is_never_mistaken_for_the_note() -> None:
    assert CUT_SHORT not in read(b"cut short\n" + TIMERS + b"\n").events["text"].to_pylist()


def test_a_last_timer_without_the_decimals_of_the_others_is_torn_at_a_line_end_too() -> None:
    torn = PFX + b"time (ms) | fwd: 300.00 | bwd: 601.00 | bwd_allreduce: 1\n00.00 | step: 85.00\n"
    assert {row["text"] for row in rows(torn, kind="phase")} == {CUT_SHORT}
    whole = PFX + b"time (ms) | fwd: 300 | bwd: 601 | bwd_allreduce: 1\n"
    assert {row["text"] for row in rows(whole, kind="phase")} == {None}


def test_a_last_number_without_decimals_ends_a_line_that_has_others_like_it() -> None:
    whole = b"step:3 - timing_s/gen:541.5 - turns:2 - timing_s/step:1163.5 - tokens:17173\n"
    assert {row["text"] for row in rows(whole, kind="phase")} == {None}


_PARTS = st.sampled_from([b"a", b":", b"|", b",", b".", b"1", b" ", b"\n", b": 2.5 |", b": "])


@given(st.lists(st.lists(_PARTS).map(b"".join), min_size=1))
def test_many_lines_stop_short_where_each_of_them_does(bodies: list[bytes]) -> None:
    for pairs in {id(p.pairs): p.pairs for p in grammar.builtin().patterns if p.pairs}.values():
        assert stop_short(bodies, pairs).tolist() == [stops_short(body, pairs) for body in bodies]
