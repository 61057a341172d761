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
