"""A few steps that became slower and slower, of which a mean alone would say nothing."""

from __future__ import annotations

from dsprof.findings import findings_of
from tests.loaded import run_of_text


def title_of(*milliseconds: float) -> str:
    """Of Megatron's lines of every fifth iteration."""
    lines = (
        f" iteration {5 * at:8}/     600 | consumed samples: {320 * at:12} | elapsed time per "
        f"iteration (ms): {took:.1f} | learning rate: 8.000E-06 |\n"
        for at, took in enumerate(milliseconds, 2)
    )
    return findings_of(run_of_text(*lines))[0].title


def test_of_few_windows_that_rise_one_after_another_no_mean_is_told_but_the_rise() -> None:
    """As of a job whose processes leak memory (Megatron-LLM's issue 22)."""
    title = title_of(84606.2, 142474.1, 202438.6)
    assert title.startswith(
        "Each of 3 windows of 5 steps took longer than the one before, from 84.6 s to 3 min 22 s a"
    )


def test_few_steps_that_rise_by_little_or_do_not_all_rise_have_a_mean() -> None:
    assert title_of(84606.2, 90000, 95000).startswith("A step takes 89.9 s")
    assert title_of(84606.2, 202438.6, 142474.1).startswith("A step takes 2 min 23")
