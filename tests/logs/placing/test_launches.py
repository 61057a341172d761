"""Where one launch ends and the next begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof import logs
from dsprof.errors import DsprofError
from tests.logs.reading import rows


def test_a_training_that_begins_when_another_is_over_is_a_launch_of_its_own() -> None:
    dicts = b"".join(b"{'loss': 1.5, 'epoch': %d.0}\n" % n for n in (1, 2, 3))
    over = b"{'train_runtime': 300.5, 'train_loss': 0.5, 'epoch': 3.0}\n"
    told = rows(dicts + over + dicts + over + over, name="loss")
    assert [(row["segment"], row["step"]) for row in told] == [
        (segment, step) for segment in (0, 1) for step in (1, 2, 3)
    ]


def test_a_training_that_goes_on_behind_its_summary_is_one() -> None:
    """Several ranks say that it is over, and one may still have a record to print."""
    text = b"{'loss': 1.5, 'epoch': 1.0}\n{'train_runtime': 9.5}\n{'loss': 1.25, 'epoch': 2.0}\n"
    assert {row["segment"] for row in rows(text, name="loss")} == {0}


def test_turns_that_begin_anew_at_0_are_of_a_new_launch() -> None:
    losses = b"epoch: 0|step: %d|ppo_ep: 1|act_loss: 0.5|cri_loss: 0.25|unsuper_loss: 0.0\n"
    text = b"".join(losses % n for n in [*range(8), *range(8)])
    assert [(row["segment"], row["step"]) for row in rows(text, name="loss")] == [
        (segment, step) for segment in (0, 1) for step in range(8)
    ]


@pytest.mark.parametrize("first", ["2026-05-18 16:04:4", "2024-04-02 16:04:4"])
def test_marks_of_another_kind_that_are_days_apart_are_of_a_launch_of_their_own(first: str) -> None:
    """Two jobs in one file: neither the step nor the clock need fall from one to the other."""
    loss = (
        "[rank0]:[titan] {}{} - root - INFO - step: 1{}  loss:  3.24405  grad_norm:  0.8319  "
        "memory:  9.46GiB(64.99%)  tps: 7,282  tflops: 0.52  mfu: 0.17%\n"
    )
    megatron = (
        "[2024-04-21 02:45:0{0}][INFO][training:1251] -  iteration=      2{0}/  317892 | "
        "elapsed_time_per_iteration_ms=17711.7 | lm loss=11.208768 | loss_scale=65536.0 |\n"
    )
    one = "".join(loss.format(first, f"{n},338", n) for n in range(4))
    other = "".join(megatron.format(n) for n in range(4))
    for text in (one + other, other + one):
        told = rows(text.encode(), name="loss")
        assert [row["segment"] for row in told] == [0] * 4 + [1] * 4


@pytest.mark.parametrize("timed", [True, False])
def test_a_log_whose_newest_line_is_the_first_is_refused_with_what_to_do(
    tmp_path: Path, timed: bool
) -> None:
    clock = "[2024-05-01 10:{0:02d}:00,000] " if timed else "a: "
    line = clock + "[INFO] [logging.py:96:log_dist] [Rank 0] step={1}, skipped=0, lr=[1e-05]\n"
    lines = [line.format(n, 10 * n) for n in range(20)]
    log = tmp_path / "run.log"
    for shown in (lines, lines[: 4 if timed else 6]):
        log.write_text("".join(reversed(shown)))
        with pytest.raises(DsprofError, match=r"newest line first \(turn it round"):
            logs.read([log])
    for order in (lines, [*lines[10:], *lines[:10]]):
        log.write_text("".join(order))
        assert logs.read([log]).events.num_rows
