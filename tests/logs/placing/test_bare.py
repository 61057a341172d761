from __future__ import annotations

import pytest

from tests.logs.reading import rows

LOGGED = b"[INFO|2025-05-02 10:20:30] llamafactory.train.callbacks:143 >> "
TWICE = [
    LOGGED + b"{'loss': 1.5000, 'epoch': %.2f, 'throughput': 900.00}\n" % epoch
    + b"{'loss': '1.5', 'grad_norm': '0.5', 'epoch': '%.4f'}\n" % epoch
    for epoch in (0.004, 0.008, 0.012, 0.016)
]  # fmt: skip


def steps(text: bytes, name: str = "loss") -> list[int | None]:
    return [row["step"] for row in rows(text, name=name)]


def test_what_a_callback_logs_of_a_record_is_no_record_more() -> None:
    """LLaMA-Factory's stands in front of the Trainer's dict, with other roundings."""
    assert steps(b"".join(TWICE)) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_bar_numbers_what_a_callback_logs_and_the_dict_behind_it() -> None:
    bar = b"  4%%|#   | %d/300 [00:%02d<09:00,  1.50s/it]"
    text = b"".join(bar % (5 * n, n) + told for n, told in enumerate(TWICE, 1))
    assert steps(text) == [5, 5, 10, 10, 15, 15, 20, 20]


def test_what_only_a_callback_logs_is_a_record_each() -> None:
    text = b"".join(LOGGED + b"{'loss': 1.5000, 'epoch': 0.0%d}\n" % n for n in (1, 1, 2))
    assert steps(text) == [1, 2, 3]


def test_records_whose_only_bars_are_of_something_else_are_counted() -> None:
    dicts = b"".join(b"{'loss': 1.5, 'epoch': 0.%d}\n" % n for n in range(1, 5))
    shards = b"Loading checkpoint shards: 100%|####| 2/2 [00:11<00:00,  5.99s/it]\n"
    over = b"100%|####| 200/200 [01:56<00:00,  1.72it/s]\n"
    assert steps(shards + dicts) == steps(dicts + over) == [1, 2, 3, 4]


def test_a_record_that_lost_the_label_of_its_host_is_of_the_process_of_the_others() -> None:
    told = [b"node1: {'loss': 1.5, 'epoch': 0.%02d}\n" % n for n in range(1, 13)]
    told[4] = told[4].removeprefix(b"node1: ")
    assert steps(b"".join(told)) == [*range(1, 13)]


def test_as_many_records_with_a_label_as_without_are_of_two_processes() -> None:
    told = [b"{'loss': 1.5, 'epoch': 0.%02d}\n" % n for n in range(1, 13)]
    both = [line for one in told for line in (one, b"node1: " + one)]
    assert steps(b"".join(both)) == [n for n in range(1, 13) for _ in range(2)]


def test_a_record_is_of_the_step_of_the_trainings_bar_and_not_of_what_was_generated() -> None:
    """vLLM draws a bar of its prompts in each step of TRL's trainers."""
    told = b"".join(
        b"Processed prompts: 100%%|####| 16/16 [00:12<00:00,  1.25it/s]\n"
        b"  4%%|#   | %d/300 [00:%02d<09:00, 12.50s/it]\n"
        b"Processed prompts: 100%%|####| 8/8 [00:02<00:00,  4.25it/s]\n"
        b"{'loss': 0.5, 'epoch': 0.0%d}\n" % (n, n, n)
        for n in (1, 2, 3)
    )
    assert steps(told) == [1, 2, 3]


def test_of_the_last_bars_the_one_of_training_is_kept() -> None:
    turns = b"Episode [1/1]: 100%|####| 12/12 [03:51<00:00, 19.27s/it]\n"
    other = b"Processed prompts: 100%|####| 16/16 [00:12<00:00,  1.25it/s]\n" * 20
    assert [row["value"] for row in rows(turns + other, name="bar_total")] == [12]
    assert rows(other, name="bar_total") == []


BAR = b"%3d%%|#   | %d/100 [00:%02d<09:00,  1.50s/it]\n"


def drawn_late(apart: int, *, first: int) -> bytes:
    """A bar in front of each record and one at the end, each redrawn since the record before."""
    bars = [BAR % (n, n, n) for n in range(0, 4 * apart + 1, apart)]
    dicts = [b"{'loss': 1.5, 'epoch': %.2f}\n" % (n / 50) for n in range(first, 50, apart)]
    return b"".join(bar + told for bar, told in zip(bars, dicts, strict=False)) + bars[-1]


def test_a_record_may_stand_in_front_of_its_bar_as_the_epochs_tell() -> None:
    """A terminal's copy keeps the bar that the Trainer draws anew behind what it prints."""
    assert steps(drawn_late(10, first=10))[:4] == [10, 20, 30, 40]


def logged_quicker_than_bars(epochs: list[float], first: int = 2) -> bytes:
    """Records of steps 2, 4, ..., 24: a loop that makes 20 steps a second redraws its bar for some
    of them only, and writes the position that it drew last behind the records of the others."""
    drawn = (first, 2, 5, 8, 8, 12, 12, 15, 18, 18, 21, 24)
    told = (b"{'loss': 1.5, 'epoch': %.4g}\n" % epoch for epoch in epochs)
    return b"".join(BAR % (n, n, n // 20) + line for n, line in zip(drawn, told, strict=True))


@pytest.mark.parametrize("first", [0, 2])
def test_even_epochs_number_records_that_are_logged_quicker_than_bars_are_redrawn(
    first: int,
) -> None:
    even = [0.04 * turn for turn in range(1, 13)]
    assert steps(logged_quicker_than_bars(even, first)) == list(range(2, 25, 2))


def test_uneven_epochs_leave_such_records_to_their_bars() -> None:
    lost = [0.04 * turn for turn in (1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13)]
    assert steps(logged_quicker_than_bars(lost)) != list(range(2, 25, 2))


def test_a_record_behind_a_bar_that_has_moved_is_of_its_step() -> None:
    moved = b"".join(
        BAR % (n, n, n) + b"{'loss': 1.5, 'epoch': %.2f}\n" % (n / 50) for n in (10, 20)
    )
    assert steps(BAR % (0, 0, 0) + moved + BAR % (30, 30, 30)) == [10, 20]


def copied_from(first: int, *, behind: bool) -> bytes:
    """A copy that begins with a record, each with the bar of its step behind it or before it."""
    told = b"{'loss': 1.5, 'epoch': %.2f}\n"
    pairs = [(told % (n / 100), BAR % (n, n, n)) for n in range(first, first + 30, 10)]
    return b"".join(b"".join(pair if behind else pair[::-1]) for pair in pairs)


def test_a_copy_may_begin_with_a_record_in_front_of_its_bar() -> None:
    assert steps(copied_from(10, behind=True)) == [10, 20, 30]


def test_a_copy_that_lost_its_first_bar_keeps_the_others_for_what_follows_them() -> None:
    cut = copied_from(10, behind=False)
    assert steps(cut[cut.index(b"{") :])[1:] == [20, 30]


def test_epochs_far_from_the_first_do_not_tell_on_which_side_bars_stand() -> None:
    assert steps(copied_from(5010, behind=True))[1:] == [5010, 5020]


@pytest.mark.parametrize("behind", [b"", b"Sending process 7 closing signal SIGTERM\n" * 200])
def test_the_bar_in_front_of_a_failure_is_read_however_much_is_said_behind_it(
    behind: bytes,
) -> None:
    text = BAR % (12, 12, 18) + BAR % (13, 13, 19) + b"RuntimeError: CUDA error: unknown error\n"
    assert [row["value"] for row in rows(text + behind, name="bar_position")] == [13]


def test_what_a_trainer_rounds_beyond_unevenly_numbered_records_is_not_numbered_by_them() -> None:
    line = b"step:%b smpl:2K ep:4 epch:%.2f loss:0.5 grdn:1.5 lr:1.0e-05 updt_s:0.5 data_s:0.1\n"

    def told(*shown: bytes) -> bytes:
        return b"".join(line % (one, 0.03 * at) for at, one in enumerate(shown, 1))

    even, odd = told(b"300", b"600", b"900", b"1K", b"2K"), told(b"300", b"700", b"900", b"1K")
    assert steps(even) == [300, 600, 900, 1200, 1500]
    assert steps(odd)[3:] != [1200]
