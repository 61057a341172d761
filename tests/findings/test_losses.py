"""Losses that are no numbers, and what the log says of why."""

from __future__ import annotations

import pytest

from tests.findings.plants import one, silent
from tests.loaded import run_of_text


@pytest.mark.parametrize("before", ["", "{'loss': 2.5, 'epoch': 0.1}\n"])
def test_a_loss_of_exactly_0_is_that_of_samples_without_labels_where_the_log_says_so(
    before: str,
) -> None:
    warned = "WARNING: tokenization mismatch: 100 vs. 101. (ignored)\n" * 3
    found = one(
        run_of_text(before, warned, "{'loss': 0.0, 'grad_norm': 0.0, 'epoch': 0.2}\n"), "nan-loss"
    )
    assert found.title.endswith(": 3 samples lost all labels")
    assert silent(run_of_text(warned, "{'loss': 2.5, 'epoch': 0.2}\n"), "nan-loss")


BAR = "Epoch 0:  12%|#   | {}/1000 [02:0{}<14:40,  1.00s/it, v_num=3, train_loss={}]\n"


def bars(*losses: str) -> str:
    return "".join(BAR.format(120 + n, n, loss) for n, loss in enumerate(losses))


@pytest.mark.parametrize("lost", ["nan.0", "nan", "inf"])
def test_a_loss_that_bars_alone_show_is_not_finite_in_the_last_of_them(lost: str) -> None:
    found = one(run_of_text(bars("2.31", lost, lost)), "nan-loss")
    assert found.title == "The loss is not finite in the last progress bar"
    assert found.confidence == "medium"


def test_a_finite_loss_of_the_last_bar_is_none_of_these() -> None:
    assert silent(run_of_text(bars("2.31", "2.29")), "nan-loss")
