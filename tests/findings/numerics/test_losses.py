"""Losses that are no numbers, and what the log says of why."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dsprof.run import load
from tests.findings.plants import alone, metric, one, quiet, run_of
from tests.loaded import run_of_text


@pytest.mark.parametrize("before", ["", "{'loss': 2.5, 'epoch': 0.1}\n"])
def test_a_loss_of_exactly_0_is_that_of_samples_without_labels_where_the_log_says_so(
    before: str,
) -> None:
    warned = "WARNING: tokenization mismatch: 100 vs. 101. (ignored)\n" * 3
    found = alone(
        run_of_text(before, warned, "{'loss': 0.0, 'grad_norm': 0.0, 'epoch': 0.2}\n"), "nan-loss"
    )
    assert found.title.endswith(": 3 samples lost all labels")
    assert quiet(run_of_text(warned, "{'loss': 2.5, 'epoch': 0.2}\n"), "nan-loss")


@pytest.mark.parametrize(
    ("every", "rises", "named"),
    [(1, 1.0, "batch of step 21"), (10, 1.0, "batches of steps 201 to 210"), (1, 1.3, "")],
)
def test_where_losses_are_as_usual_up_to_one_that_is_not_finite_its_batch_is_looked_at(
    every: int, rises: float, named: str
) -> None:
    values = [2.0 * rises**n for n in range(20)] + [math.nan] * 9
    rows = [metric("loss", every * step, value) for step, value in enumerate(values, 1)]
    rows = [row | {"record": number} for number, row in enumerate(rows)]
    settings = [advice.setting for advice in alone(run_of(rows), "nan-loss").advice]
    assert [one for one in settings if "batch" in one] == [named] * bool(named)
    assert "learning rate, warm-up" in settings


@pytest.mark.parametrize(("epoch", "advised"), [(0.02, True), (0.66, False)])
def test_a_record_in_the_middle_of_an_epoch_is_no_early_step(
    tmp_path: Path, epoch: float, advised: bool
) -> None:
    line = "{{'loss': {}, 'grad_norm': nan, 'learning_rate': 4.5e-06, 'epoch': {}}}\n"
    log = tmp_path / "run.log"
    log.write_text("".join(line.format(loss, epoch) for loss in (1.5, 1.25, 1.75)))
    found = one(load(log), "nan-loss")
    assert found.title.endswith("not finite at record 1")
    assert ("learning rate, warm-up" in [one.setting for one in found.advice]) is advised


@pytest.mark.parametrize(("rate", "advised"), [(0.0, False), (4e-10, False), (1e-5, True)])
def test_learning_rates_that_move_no_weight_are_not_the_cause_of_what_is_not_finite(
    rate: float, advised: bool
) -> None:
    rows = [metric("lr", step, rate) for step in (1, 2)]
    rows += [metric("loss", 1, 3.5), metric("grad_norm", 2, math.nan)]
    settings = [advice.setting for advice in alone(run_of(rows), "nan-loss").advice]
    assert ("learning rate, warm-up" in settings) == advised


def test_no_learning_rate_is_the_cause_of_what_is_not_finite_before_the_first_update() -> None:
    def advised(first: int, **told: int) -> list[str]:
        rows = [metric("loss", step, math.nan) | told for step in (first, first + 1)]
        return [one.setting for one in alone(run_of(rows), "nan-loss").advice]

    assert advised(1)[:2] == ["first batch", "weights as they were loaded"]
    assert not {"learning rate, warm-up", "gradient_clipping"} & {*advised(1)}
    for told in (advised(2), advised(1, steps=10)):
        assert "learning rate, warm-up" in told
        assert "first batch" not in told


def test_bf16_is_not_advised_where_training_is_in_fp32() -> None:
    rows = [metric("loss", step, math.nan) for step in (1, 2)]
    for dtype, advised in (("fp16", True), ("fp32", False)):
        found = alone(run_of(rows, dtype=dtype), "nan-loss")
        assert ("bf16.enabled" in [one.setting for one in found.advice]) is advised


BAR = "Epoch 0:  12%|#   | {}/1000 [02:0{}<14:40,  1.00s/it, v_num=3, train_loss={}]\n"


def bars(*losses: str) -> str:
    return "".join(BAR.format(120 + n, n, loss) for n, loss in enumerate(losses))


@pytest.mark.parametrize("lost", ["nan.0", "nan", "inf"])
def test_a_loss_that_bars_alone_show_is_not_finite_in_the_last_of_them(lost: str) -> None:
    found = one(run_of_text(bars("2.31", lost, lost)), "nan-loss")
    assert found.title == "The loss is not finite in the last progress bar"
    assert found.confidence == "medium"


def test_a_finite_loss_of_the_last_bar_is_none_of_these() -> None:
    assert quiet(run_of_text(bars("2.31", "2.29")), "nan-loss")


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_what_may_be_infinite_because_its_step_is_skipped_is_called_by_its_name(name: str) -> None:
    rows = [metric(name, step, 2.0) for step in range(1, 20)] + [metric(name, 20, math.inf)]
    rows = [row | {"record": number} for number, row in enumerate(rows)]
    called = {"loss": "loss", "grad_norm": "gradient norm"}[name]
    assert f"An infinite {called} of fp16" in alone(run_of(rows), "nan-loss").summary
