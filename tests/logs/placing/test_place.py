"""Which launch, engine and optimizer step a line belongs to."""

from __future__ import annotations

import pytest

from tests.logs.reading import PFX, STEP, read, rows

LAUNCH = b"[2024-03-15 13:00:00,000] [INFO] [runner.py:568:main] cmd = "
LAUNCH += b"/usr/bin/python3 -u -m deepspeed.launcher.launch --world_info=e30= train.py\n"
MICRO = PFX + b"time (ms) | fwd_microstep: %d.00 | bwd_microstep: 2.00 | step_microstep: 1.00\n"
CALL = PFX + b"comm op: all_reduce | time (ms): 2.00 | msg size: 1.0 MB | algbw (Gbps): 4.19\n"
GLOBAL = PFX + b"time (ms) | fwd: %d.00 | bwd: 20.00 | step: 3.00\n"
PIPE = PFX + b"steps: %d loss: 2.50 iter time (s): 1.500 samples/sec: 10.0\n"
WINDOW = (
    b"time (ms) | pipe_send_output: 1.00 | pipe_recv_grad: 4.00 | train_batch: 60.00 | "
    b"batch_input: 1.00 | forward: 10.00 | backward: 20.00 | step: 5.00\n"
)


def mark(step: int, *, prefix: bytes = PFX) -> bytes:
    return prefix + STEP % step + b"\n"


def steps(text: bytes, name: str) -> list[int | None]:
    return [row["step"] for row in rows(text, name=name)]


def segments(text: bytes) -> list[int]:
    return [row["segment"] for row in rows(text, name="skipped")]


def test_a_timer_line_belongs_to_the_step_printed_before_it() -> None:
    """The plain engine prints step=N, then the timers of step N."""
    text = b"".join(mark(n) + MICRO % n + GLOBAL % n for n in range(1, 4))
    assert [(r["step"], r["seconds"]) for r in rows(text, raw="fwd")] == [
        (1, 0.001),
        (2, 0.002),
        (3, 0.003),
    ]
    assert steps(text, "skipped") == [1, 2, 3]


def test_micro_lines_belong_to_the_step_that_they_lead_to() -> None:
    text = b"".join(MICRO % n + mark(n) + MICRO % (10 + n) + GLOBAL % n for n in range(1, 4))
    assert [row["step"] for row in rows(text, raw="fwd_microstep")] == [1, 1, 2, 2, 3, 3]
    assert {row["steps"] for row in rows(text, raw="fwd_microstep")} == {None}
    assert {row["steps"] for row in rows(text, raw="fwd")} == {1}


def test_without_any_step_number_closing_lines_are_counted() -> None:
    log = read(b"".join(MICRO % n + GLOBAL % n for n in range(1, 4)))
    told = [row["step"] for row in log.events.to_pylist() if row["raw"] == "fwd"]
    assert told == [1, 2, 3]
    assert log.meta["counted_steps"] is True


def test_a_count_from_the_launch_on_is_the_step() -> None:
    log = read(LAUNCH + b"".join(GLOBAL % n for n in range(1, 4)))
    assert log.meta["counted_steps"] is False


def test_records_without_a_step_are_counted_and_said_to_be() -> None:
    text = b"".join(b"{'loss': 1.5, 'learning_rate': 0.1, 'epoch': 0.%d}\n" % n for n in (1, 2, 3))
    log = read(LAUNCH + text)
    marks = [row for row in log.events.to_pylist() if row["name"] == "loss"]
    assert [row["step"] for row in marks] == [1, 2, 3]
    assert {row["steps"] for row in marks} == {None}
    assert log.meta["counted_steps"] is True


def test_records_among_closing_lines_are_of_the_steps_closed_by_then() -> None:
    record = b"{'loss': 1.5, 'learning_rate': 0.1, 'epoch': 0.1}\n"
    text = LAUNCH + b"".join(GLOBAL % n + (record if n % 5 == 0 else b"") for n in range(1, 21))
    assert steps(text, "loss") == [5, 10, 15, 20]
    assert [row["step"] for row in rows(text, raw="fwd")] == [*range(1, 21)]
    assert read(text).meta["counted_steps"] is False


def test_lines_of_means_without_any_mark_are_a_step_each() -> None:
    """A ticket often quotes Megatron's timers alone."""
    line = b"time (ms) | forward-compute: %d.00 | backward-compute: 7.00 | optimizer: 1.00\n"
    text = b"".join(line % n for n in (5, 6, 7))
    assert [(row["step"], row["steps"]) for row in rows(text, name="forward-compute")] == [
        (1, 1), (2, 1), (3, 1)
    ]  # fmt: skip


def test_a_bar_behind_closing_lines_that_it_does_not_number_leaves_them_a_count() -> None:
    bar = b" 51%|##### | 507/1000 [15:32<16:42,  2.03s/it]\n"
    assert read(GLOBAL % 1 + bar + GLOBAL % 2 + bar).meta["counted_steps"] is True


def test_timers_of_two_engines_are_numbered_only_beside_a_mark() -> None:
    """Actor and critic close each step, and name every fifth: the others are nobody's."""
    text = LAUNCH
    for n in range(1, 16):
        for engine in (0, 1):
            text += (mark(n) if n % 5 == 0 else b"") + GLOBAL % (n + 100 * engine)
    told = [(r["engine"], r["step"], r["seconds"]) for r in rows(text, raw="fwd") if r["step"]]
    wanted = [(e, n, (n + 100 * e) / 1000) for n in (5, 10, 15) for e in (0, 1)]
    assert [(e, n, round(s, 3)) for e, n, s in told] == wanted


def test_timers_are_printed_each_step_and_marks_every_tenth() -> None:
    text = b"".join((mark(n) if n % 10 == 0 else b"") + GLOBAL % n for n in range(1, 31))
    assert [row["step"] for row in rows(text, raw="fwd")] == [*range(1, 31)]


def test_a_mark_stands_for_the_steps_since_the_one_before() -> None:
    text = b"".join(PIPE % n for n in (10, 20, 30))
    assert [row["steps"] for row in rows(text, name="loss")] == [10, 10, 10]


def test_a_line_of_step_zero_is_no_step() -> None:
    text = mark(0) + mark(10) + mark(20)
    assert [row["steps"] for row in rows(text, name="skipped")] == [None, 10, 10]


def test_a_falling_step_number_opens_a_segment() -> None:
    text = b"".join(mark(n) for n in (10, 20, 30, 40, 50, 60, 20, 30, 40, 50))
    assert segments(text) == [0] * 6 + [1] * 4


def at(clock: bytes) -> bytes:
    return PFX.replace(b"13:21:52", clock)


@pytest.mark.parametrize(
    "steps_",
    [
        [10, 20, 30, 40, 50, 60, 50, 70, 80, 90],
        [10, 20, 30, 40, 60, 50, 70, 80, 90],
        [10, 20, 30, 40, 50, 30, 40, 60, 70, 80, 90],
        [10, 20, 30, 40, 50, 60, 10],
    ],
)
def test_a_mark_that_is_printed_late_is_no_launch(steps_: list[int]) -> None:
    text = b"".join(mark(n) for n in steps_)
    assert segments(text) == [0] * len(steps_)
    assert steps(text, "skipped") == steps_


def test_timers_around_a_late_mark_keep_their_steps() -> None:
    marks = [mark(n) + GLOBAL % n for n in range(1, 7)]
    text = b"".join([*marks[:4], mark(2), *marks[4:]])
    assert steps(text, "forward") == [*range(1, 7)]


def skips(step: int, skipped: int) -> bytes:
    return mark(step).replace(b"skipped=0", b"skipped=%d" % skipped)


def test_a_falling_count_of_skipped_steps_opens_a_segment() -> None:
    """The engine counts on for as long as it lives: another one was resumed from its checkpoint."""
    first, second = (b"".join(skips(n, 15) for n in range(1, 8)), skips(8, 0) + skips(9, 1))
    assert segments(first + second) == [0] * 7 + [1] * 2
    assert segments(first + skips(8, 16)) == [0] * 8


def test_a_line_that_talks_of_skipped_steps_is_no_launch() -> None:
    counts = [skips(n, 0) for n in range(1, 8)]
    assert set(segments(b"".join([*counts[:4], skips(5, 900), *counts[4:]]))) == {0}


def test_closing_lines_belong_to_the_mark_nearest_to_them() -> None:
    """That of step 2 was lost: the one behind step 3 is of step 3."""
    text = mark(1) + GLOBAL % 1 + mark(2) + mark(3) + GLOBAL % 3 + mark(4) + GLOBAL % 4
    told = [(row["step"], row["seconds"]) for row in rows(text, raw="fwd")]
    assert told == [(1, 0.001), (3, 0.003), (4, 0.004)]


def test_closing_lines_beyond_the_steps_up_to_the_next_mark_are_of_no_step() -> None:
    text = mark(1) + GLOBAL % 1 + GLOBAL % 9 + mark(2) + GLOBAL % 2
    assert steps(text, "forward") == [1, None, 2]


def test_timer_lines_in_front_of_the_only_mark_are_of_the_steps_before_it() -> None:
    """A log that ends behind its first numbered mark, whose own timers are not printed yet."""
    text = b"".join(GLOBAL % n for n in range(1, 10)) + mark(10)
    assert steps(text, "forward") == [*range(1, 10)]
    text = mark(0) + MICRO % 1 + GLOBAL % 1 + MICRO % 2 + mark(2) + MICRO % 3
    assert [row["step"] for row in rows(text, raw="fwd")] == [1]
    assert [row["step"] for row in rows(text, raw="fwd_microstep")] == [1, 2, 2]


def test_no_line_changes_its_step_as_the_log_grows_behind_its_first_mark() -> None:
    lines = [mark(0)]
    for n in range(1, 8):
        lines += [MICRO % n, *([mark(n)] if n % 3 == 0 else []), MICRO % n, GLOBAL % n]
    whole = [row["step"] for row in rows(b"".join(lines), kind="phase")]
    for end in range(lines.index(mark(3)) + 1, len(lines)):
        told = [row["step"] for row in rows(b"".join(lines[:end]), kind="phase")]
        assert told == whole[: len(told)]


@pytest.mark.parametrize("behind", [b"", GLOBAL % 9])
def test_no_timer_line_is_of_a_step_that_is_printed_behind_it(behind: bytes) -> None:
    """The timers of marks 2 and 3 were lost: a second line behind step 1 is not of step 2, and
    one in front of step 10 not of step 19."""
    assert steps(mark(1) + GLOBAL % 1 + GLOBAL % 9 + mark(2) + behind, "forward")[:2] == [1, None]
    text = mark(1) + GLOBAL % 1 + GLOBAL % 9 + mark(2) + mark(3) + behind
    assert steps(text, "forward")[:2] == [1, None]
    assert steps(GLOBAL % 1 + mark(10) + mark(20) + behind, "forward")[:1] == [9]


def test_a_step_number_that_cannot_be_read_is_not_that_of_its_neighbour() -> None:
    odd = mark(7).replace(b"step=7", b"step=" + b"9" * 30)
    told = [(1, 0.001), (2, 0.002), (None, 0.007), (3, 0.003)]
    text = b"".join(mark(n) + GLOBAL % n for n in (1, 2)) + odd + GLOBAL % 7 + mark(3) + GLOBAL % 3
    assert [(row["step"], row["seconds"]) for row in rows(text, raw="fwd")] == told


def test_two_engines_that_skip_different_steps_are_one_launch() -> None:
    turns = b"".join(skips(n, 0) + skips(n, n // 2) for n in range(1, 20))
    assert set(segments(turns)) == {0}


def test_a_launch_that_resumes_below_is_one_however_far_it_comes() -> None:
    text = b"".join(mark(n) for n in (10, 20, 30, 40, 50, 60, 45, 50, 55, 60, 65, 70))
    assert segments(text) == [0] * 6 + [1] * 6
    text = b"".join(mark(n) for n in (10, 20, 30, 40, 50, 60, 20, 30))
    assert segments(text) == [0] * 6 + [1] * 2


def test_one_line_with_an_old_time_is_no_launch() -> None:
    clocks = [b"13:%02d:00" % n for n in (10, 11, 12, 13)]
    text = b"".join(mark(n, prefix=at(clock)) for n, clock in enumerate(clocks, 1))
    late = mark(5, prefix=at(b"01:00:00")) + mark(6, prefix=at(b"13:15:00"))
    assert segments(text + late) == [0] * 6


def test_the_end_of_summer_time_and_a_long_pause_are_no_launch() -> None:
    text = b"".join(mark(n, prefix=at(b"02:%02d:00" % (40 + n))) for n in range(1, 6))
    text += b"".join(mark(n, prefix=at(b"01:%02d:00" % (40 + n))) for n in range(6, 11))
    text += b"".join(mark(n, prefix=at(b"22:%02d:00" % n)) for n in range(11, 15))
    assert segments(text) == [0] * 14


def test_a_launch_line_behind_steps_opens_a_segment_but_not_at_the_start() -> None:
    text = LAUNCH + mark(10) + mark(20) + LAUNCH + LAUNCH + mark(30) + mark(40)
    assert segments(text) == [0, 0, 1, 1]


def test_a_clock_that_runs_back_opens_a_segment() -> None:
    early = PFX.replace(b"13:21:52", b"01:21:52")
    text = mark(10) + mark(20) + mark(30, prefix=early) + mark(40, prefix=early)
    assert segments(text) == [0, 0, 1, 1]


def test_two_engines_that_take_turns_are_told_apart() -> None:
    later = PFX.replace(b",800", b",804")  # a line that is the same in all was printed twice
    text = b"".join(mark(n) + mark(n, prefix=later) for n in range(1, 11))
    assert [row["engine"] for row in rows(text, name="skipped")] == [0, 1] * 10
    assert set(segments(text)) == {0}


def test_as_many_engines_as_take_turns_are_told_apart() -> None:
    later = [PFX.replace(b",800", b",8%02d" % engine) for engine in range(12)]
    text = b"".join(mark(n, prefix=prefix) for n in range(1, 5) for prefix in later)
    assert [row["engine"] for row in rows(text, name="skipped")] == [*range(12)] * 4


def test_a_trainers_line_that_stands_there_several_times_is_of_ranks_and_no_engines() -> None:
    """torchtitan prints on every rank, without its number, unless told otherwise."""
    line = b"step: %2d  loss: 7.5000  memory: 9.25GiB(11.56%%)  tps: 85%d  mfu: 2.25%%\n"
    found = rows(b"".join(line % (n, rank) for n in range(1, 6) for rank in range(4)), name="loss")
    assert [(row["engine"], row["step"]) for row in found[::4]] == [(0, n) for n in range(1, 6)]
    assert {row["engine"] for row in found} == {0}


def test_a_block_of_timers_alone_is_of_one_step() -> None:
    """Pasted without the line of its iteration: a timer that is there again is of the next one."""
    block = (
        b"    (min, max) time across ranks (ms):\n"
        b"    forward-compute ....................: (402.25, 410.50)\n"
        b"    backward-compute ...................: (601.00, 618.75)\n"
        b"    optimizer ..........................: (20.25, 20.50)\n"
    )
    told = [row["step"] for row in rows(2 * block, kind="phase")]
    assert told == [1, 1, 1, 2, 2, 2]


def test_bare_marks_are_numbered_by_their_own_count() -> None:
    text = b"{'loss': 1.0, 'epoch': 0.1}\n{'loss': 2.0, 'epoch': 0.2}\n"
    assert steps(text, "loss") == [1, 2]


def test_bare_marks_take_the_numbers_of_the_marks_around_them() -> None:
    loss = b"{'loss': 1.0, 'epoch': 0.1}\n"
    text = b"".join(mark(n) + loss + MICRO % n + GLOBAL % n for n in (5, 10, 15, 20))
    assert steps(text, "loss") == [5, 10, 15, 20]


@pytest.mark.parametrize("leads", [True, False])
def test_more_bare_marks_than_numbered_ones_stand_as_far_apart_at_both_ends(leads: bool) -> None:
    """Each tenth of 270 steps has a loss, each 50th from the 100th on a numbered mark."""
    loss, text = b"{'loss': 1.0, 'epoch': 0.1}\n", b""
    for n in range(10, 271, 10):
        numbered = mark(n) if n % 50 == 0 and n > 50 else b""
        text += numbered + loss if leads else loss + numbered
    assert steps(text, "loss") == list(range(10, 271, 10))


def epochs(*told: float) -> list[bytes]:
    return [b"{'loss': 1.0, 'epoch': %r}\n" % epoch for epoch in told]


def test_epochs_number_the_records_in_front_of_the_only_mark() -> None:
    *before, beside = epochs(0.25, 0.5, 0.75, 1.0)
    text = b"".join(before) + mark(2000) + beside + b"".join(epochs(1.25, 1.5))
    assert steps(text, "loss") == [500, 1000, 1500, 2000, 2500, 3000]


def test_epochs_in_full_number_records_that_stand_unevenly_apart() -> None:
    *before, beside = epochs(*(step / 353 for step in (1, 20, 60, 80)))
    assert steps(b"".join(before) + mark(80) + beside, "loss") == [1, 20, 60, 80]


@pytest.mark.parametrize(
    "told",
    [
        (0.25, 0.5, 0.9, 1.0),  # not evenly, and too coarse to say more
        (0.5, 0.67, 0.83, 1.0),  # not from the first step on
        (0.01, 0.01, 0.01, 0.02),
        (),
    ],
)
def test_records_in_front_of_the_only_mark_are_of_no_step_where_epochs_do_not_tell(
    told: tuple[float, ...],
) -> None:
    *before, beside = epochs(*told) if told else [b"{'loss': 1.0}\n"] * 4
    text = b"".join(before) + mark(2000) + beside
    assert steps(text, "loss") == [None] * 4


def test_a_bare_mark_as_far_from_two_steps_belongs_to_the_one_before_it() -> None:
    """A trainer logs when the engine's step is over."""
    loss = b"{'loss': 1.0, 'epoch': 0.1}\n"
    text = mark(5) + loss + mark(10) + loss + mark(15)
    assert steps(text, "loss") == [5, 10]


def test_engines_that_say_the_same_steps_keep_their_own_values() -> None:
    """An actor and a critic print one after the other, each its own learning rate."""
    critic = STEP.replace(b"0.001", b"0.5")
    text = b"".join(PFX + STEP % n + b"\n" + PFX + critic % n + b"\n" for n in range(1, 6))
    found = [(row["engine"], row["step"], row["value"]) for row in rows(text, name="lr")]
    assert found == [(e, n, rate) for n in range(1, 6) for e, rate in ((0, 0.001), (1, 0.5))]


def test_an_overflow_belongs_to_the_step_that_it_spoils() -> None:
    overflow = PFX + (
        b"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, "
        b"reducing to 32768.0\n"
    )
    text = mark(1) + GLOBAL % 1 + overflow + mark(2) + GLOBAL % 2
    assert [row["step"] for row in rows(text, name="overflow")] == [2]


@pytest.mark.parametrize("behind", [True, False])
def test_a_loss_that_a_loop_prints_when_its_step_is_over_is_not_of_the_next_mark(
    *, behind: bool
) -> None:
    """That of step 10 stands behind the line of step 10, if the loop prints when it is over."""
    text = b""
    for turn in range(1, 31):
        own = mark(turn) if turn % 10 == 0 else b""
        line = b"step: %d, loss: 2.5\n" % turn
        text += own + line if behind else line + own
    assert steps(text, "loss") == [10] * 10 + [20] * 10 + [30] * 10
    assert steps(text, "skipped") == [10, 20, 30]


def test_a_loss_of_every_second_step_in_front_of_marks_is_of_the_next_one() -> None:
    """Two stand in front of the mark of step 5, and three in front of that of step 10."""
    text = b""
    for turn in range(1, 21):
        text += b"step: %d, loss: 2.5\n" % turn if turn % 2 == 0 else b""
        text += mark(turn) if turn % 5 == 0 else b""
    assert steps(text, "loss") == [5] * 2 + [10] * 3 + [15] * 2 + [20] * 3


@pytest.mark.parametrize(
    ("marks", "told"), [([20, 30], [10, 20, 30]), ([20], [None, 20]), ([10, 20], [None, 10, 20])]
)
def test_a_rate_in_front_of_the_first_mark_is_of_the_one_that_was_cut_off(
    marks: list[int], told: list[int | None]
) -> None:
    rate = b"epoch=0/micro_step=1/global_step=1, RunningAvgSamplesPerSec=2.5, "
    rate = PFX + rate + b"CurrSamplesPerSec=2.25, MemAllocated=1.0GB, MaxMemAllocated=2.0GB\n"
    text = rate + b"".join(mark(step) + rate for step in marks)
    assert steps(text, "samples_per_second") == told
    assert steps(mark(0) + text, "samples_per_second")[0] is None
    if len(marks) == 1:  # how many steps a mark covers is as unknown where it is said twice
        assert steps(text + mark(20) + rate, "samples_per_second") == [*told, 20]


def test_ranks_and_hosts_are_placed_each_for_itself() -> None:
    text = b"".join(
        b"worker-%d: " % host + mark(n) + b"worker-%d: " % host + GLOBAL % n
        for n in range(1, 4)
        for host in (1, 2)
    )
    found = [(row["host"], row["step"]) for row in rows(text, raw="fwd")]
    assert found == [(f"worker-{host}", n) for n in range(1, 4) for host in (1, 2)]


def test_a_launch_that_begins_again_after_its_processes_were_ended_is_another() -> None:
    version = PFX + b"DeepSpeed info: version=0.3.17, git-hash=unknown, git-branch=unknown\n"
    launch = version + b"Killing subprocess 22920\nKilling subprocess 22921\n"
    told = read(launch + launch + version).events.to_pylist()
    starts = [row["segment"] for row in told if row["name"] == "deepspeed_version"]
    assert starts == [0, 1, 2]


def _beside(bar: int) -> bytes:
    return b" 25%%|##  | %d/%d [00:20<01:00, 2.00s/it]{'loss': 2.5, 'epoch': 0.25}\n" % (bar, 40)


def test_bars_beside_records_number_them_where_a_step_line_agrees() -> None:
    text = _beside(10) + _beside(20) + mark(30) + _beside(30) + _beside(40)
    assert [row["step"] for row in rows(text, name="loss")] == [10, 20, 30, 40]


def test_bars_of_another_loop_do_not_number_records_beside_step_lines() -> None:
    """Four micro-batches a step: the bar is not the optimizer's count."""
    text = b"".join(_beside(4 * n) + mark(n) for n in (10, 20, 30))
    assert [row["step"] for row in rows(text, name="loss")] == [10, 20, 30]


def spans(text: bytes) -> list[tuple[int | None, int | None]]:
    return [(row["step"], row["steps"]) for row in rows(text, kind="comm")]


def test_calls_between_two_marks_are_of_as_many_steps_as_lie_between_them() -> None:
    text = b"".join(CALL * 10 + mark(n) for n in (10, 20, 30))
    assert spans(text) == [(n, 10) for n in (10, 20, 30) for _ in range(10)]


def test_calls_between_timer_lines_of_each_step_are_of_one_step_however_rare_the_marks() -> None:
    text = b"".join(CALL + (mark(n) if n % 2 == 0 else b"") + GLOBAL % n for n in range(1, 5))
    assert spans(text) == [(n, 1) for n in range(1, 5)]


def test_calls_before_timers_that_sum_over_a_window_are_of_its_steps() -> None:
    text = b"".join(CALL * 3 + PIPE % n + WINDOW for n in (3, 6, 9))
    assert spans(text) == [(n, 3) for n in (3, 6, 9) for _ in range(3)]


def test_calls_before_the_only_mark_are_of_no_step_unless_it_is_the_first() -> None:
    assert spans(CALL * 2 + mark(10)) == [(None, None)] * 2
    assert spans(CALL + mark(1)) == [(1, 1)]
    assert spans(CALL + GLOBAL % 7) == [(1, 1)]


def test_calls_of_set_up_are_of_no_step() -> None:
    assert spans(CALL + mark(0) + CALL + mark(10) + mark(20)) == [(None, None), (10, 10)]


def test_calls_before_records_that_were_counted_are_of_no_step() -> None:
    """Nobody knows how many steps lie between two of them; timer lines do tell."""
    record = b"{'loss': 1.5, 'learning_rate': 0.1, 'epoch': 0.5}\n"
    assert spans((CALL + record) * 3) == [(None, None)] * 3
    assert spans((CALL + GLOBAL % 7 + record) * 3) == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.parametrize(
    ("printed", "covered"),
    [
        ((10, 20, 500), [10, 10, 10]),
        ((10, 20, 30, 500, 510), [10, 10, 10, 10, 10]),
        ((110, 120, 130, 500, 510), [10, 10, 10, 10, 10]),
        ((1, 2, 3, 4, 500), [1, 1, 1, 1, 1]),
        ((1, 2, 3, 5, 6), [1, 1, 1, 2, 1]),  # the line of one step may be wanting
        ((1, 2, 4, 8, 16, 32), [1, 1, 2, 4, 8, 16]),  # no two alike
        ((10, 500), [10, 490]),
    ],
)
def test_a_line_of_an_excerpt_stands_for_no_more_than_those_of_the_whole_log(
    printed: tuple[int, ...], covered: list[int]
) -> None:
    """Numbers of steps show that lines in front of it are missing."""
    told = b"".join(map(mark, printed))
    assert [row["steps"] for row in rows(told, name="skipped")] == covered


@pytest.mark.parametrize("gap", [b"...\n", b"[...]\n", b"<truncated>\n"])
def test_a_line_behind_lines_that_were_left_out_stands_for_no_more_than_the_others(
    gap: bytes,
) -> None:
    told = b"".join(map(mark, (10, 20))) + gap + b"".join(map(mark, (900, 910)))
    assert [row["steps"] for row in rows(told, name="skipped")] == [10, 10, 10, 10]
    alone = mark(10) + gap + mark(900)  # nothing tells how often it is printed
    assert [row["steps"] for row in rows(alone, name="skipped")] == [None, None]
