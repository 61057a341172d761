"""A learning rate that does not move shows steps that were skipped, where no line counts them."""

from __future__ import annotations

import pytest

from tests.loaded import run_of_text

RECORD = "{{'loss': 5.{0}, 'learning_rate': {1}, 'epoch': 0.01}}\n"


@pytest.mark.parametrize(
    ("rates", "told"),
    [
        (["9.00900900900901e-08"] * 8, True),
        (["0.0"] * 8, True),
        (["9.00900900900901e-08"] + ["0.0"] * 8, False),  # the end of a schedule
        (["9.00900900900901e-08"] * 4, False),
        (["9.00900900900901e-08"] * 8 + ["1.8018018018018e-07"], False),
        (["2e-05"] * 8, False),  # a constant schedule
        (["2.0000000000000003e-06"] * 8, False),  # a tenth of 2e-05, the floor of a schedule
    ],
)
def test_a_learning_rate_that_stands_still_shows_skipped_steps(
    rates: list[str], *, told: bool
) -> None:
    run = run_of_text(*(RECORD.format(n, rate) for n, rate in enumerate(rates)))
    titles = [one.title for one in run.findings if one.rule == "overflow-streak"]
    assert bool(titles) is told
    if told:
        still = f"The learning rate stands still at {float(rates[0]):.4g} in the last 8 records: "
        why = "either its schedule keeps it, or their steps were skipped"
        if float(rates[0]) == 0:
            why = "their steps were most likely skipped"
        assert titles == [still + why]


@pytest.mark.parametrize("who", ["node{}: ", "[rank{}]: "])
def test_a_learning_rate_that_each_host_prints_does_not_stand_still(who: str) -> None:
    run = run_of_text(
        *(
            who.format(host) + RECORD.format(9 - step, step * 9.00900900900901e-08)
            for step in range(1, 9)
            for host in range(6)
        )
    )
    assert "overflow-streak" not in {one.rule for one in run.findings}


@pytest.mark.parametrize(("dtype", "told"), [("float16", True), ("float32", False)])
def test_no_step_is_skipped_without_a_loss_scale(dtype: str, *, told: bool) -> None:
    made = f"[logging.py:123:log_dist] [Rank 0] Creating torch.{dtype} ZeRO stage 1 optimizer\n"
    stays = [RECORD.format(n, "9.00900900900901e-08") for n in range(8)]
    rules = {one.rule for one in run_of_text(made, *stays).findings}
    assert ("overflow-streak" in rules) is told
