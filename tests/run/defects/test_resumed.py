"""Rates that the Trainer states of a training that it resumed."""

from __future__ import annotations

import pytest

from dsprof.text.stated import training
from tests.loaded import run_of_text


def trained(start: int, *, every: int = 20, before: int = 0) -> str:
    """A Trainer's bar and records of steps of 1 s up to the 200th, `before` seconds of set-up."""
    said = []
    for step in range(start + every, 201, every):
        took = before + step - start
        said.append(
            f"{step // 2}%|##   | {step}/200 [{took // 60:02d}:{took % 60:02d}<00:30,  1.00s/it]\n"
        )
        said.append(f"{{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': {step / 200}}}\n")
    took = before + 200 - start
    said.append(
        f"{{'train_runtime': {took}.0, 'train_samples_per_second': {6400 / took:.3f}, "
        f"'train_steps_per_second': {200 / took:.3f}, 'train_loss': 1.5, 'epoch': 1.0}}\n"
    )
    return "".join(said)


@pytest.mark.parametrize(
    ("start", "every", "before", "dropped"),
    [
        (100, 20, 0, True),
        (100, 20, 12, True),
        (0, 20, 0, False),
        (0, 100, 30, False),
        (10, 10, 0, False),  # less than a tenth of all steps
    ],
)
def test_rates_that_divide_steps_of_earlier_launches_by_the_time_of_the_last_are_dropped(
    start: int, every: int, before: int, dropped: bool
) -> None:
    run = run_of_text(trained(start, every=every, before=before))
    said = training(run)
    assert said is not None
    assert said.seconds == before + 200 - start
    assert (said.steps_per_second is None) is dropped
    assert (said.samples_per_second is None) is dropped
    assert ("rates-of-all-steps" in set(run.repairs["name"])) is dropped


def test_a_longer_bar_of_an_evaluation_does_not_hide_that_a_rate_is_of_all_steps() -> None:
    evaluated = [f"{i * 10}%|## | {i * 100}/1000 [00:0{i}<00:09, 100.0it/s]\n" for i in (1, 2, 3)]
    *steps, end = trained(100, every=10).splitlines(keepends=True)
    said = training(run_of_text(*steps, *evaluated, end))
    assert said is not None
    assert said.steps_per_second is None


def test_a_training_of_a_few_seconds_whose_first_bar_stands_at_none_was_not_resumed() -> None:
    text = "".join(
        f"{5 * i * 100 // 40}%|##   | {5 * i}/40 [00:{i // 2:02d}<00:03, 10.00it/s]\n"
        f"{{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': {i / 8}}}\n"
        for i in range(1, 9)
    )
    text += "{'train_runtime': 4.0, 'train_steps_per_second': 10.0, 'epoch': 1.0}\n"
    told = training(run_of_text(text))
    assert told is not None
    assert told.steps_per_second == 10.0


@pytest.mark.parametrize(("done", "dropped"), [(100, True), (5, False)])
def test_a_trainer_without_a_bar_says_itself_that_it_resumed(done: int, dropped: bool) -> None:
    lines = [line for line in trained(100).splitlines(keepends=True) if "it]" not in line]
    banner = "  Total optimization steps = 200\n  Continuing training from global step "
    told = training(run_of_text(f"***** Running training *****\n{banner}{done}\n", *lines))
    assert told is not None
    assert (told.steps_per_second is None) is dropped


def test_rates_of_the_steps_of_one_launch_are_kept() -> None:
    """As transformers 5 states them."""
    told = training(run_of_text(trained(100).replace("2.000", "1.000")))
    assert told is not None
    assert told.steps_per_second == 1.0
