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
