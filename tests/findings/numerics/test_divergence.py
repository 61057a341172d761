"""A loss that rises for good is told with the step at which it rose; noise and spikes are not."""

from __future__ import annotations

import numpy as np
import pytest

from dsprof.events import Severity
from dsprof.run import Run
from tests.findings.plants import alone, metric, one, quiet, run_of, silent, why

RULE = "loss-diverged"


def printed(losses: list[float] | np.ndarray) -> Run:
    return run_of([metric("loss", step, float(loss)) for step, loss in enumerate(losses, 1)])


def falling(count: int) -> np.ndarray:
    noise = np.random.default_rng(0).lognormal(0.0, 0.05, count)
    return (2.0 + 9.0 * np.exp(-np.arange(count) / 40)) * noise


def test_a_loss_that_jumps_and_stays_is_told_with_its_step_and_proof() -> None:
    losses = falling(300)
    losses[200:] = 7.0 * losses[200:] / losses[200:].mean()
    found = one(printed(losses), RULE)
    assert found.severity is Severity.CRITICAL
    assert found.steps == (201, 300)
    assert "at step 201 and stays there" in found.title
    assert [proof.line for proof in found.evidence] == [200, 201]
    assert found.evidence[1].text == f"step 201: loss {losses[200]:.6g}"
    assert "training lost what it had learnt" in found.summary
    assert any("checkpoint" in advice.setting for advice in found.advice)


def test_a_loss_that_climbs_slowly_is_told_where_it_left_its_level() -> None:
    losses = falling(600)
    losses[300:] += np.linspace(0.0, 5.0, 300)
    found = alone(printed(losses), RULE)
    assert found.steps is not None
    assert 340 <= found.steps[0] <= 420


def test_a_loss_that_rises_to_less_than_its_epochs_mean_so_far_was_as_high_before() -> None:
    losses = [3.2, 3.7, 3.9, 2.0, 4.2, 10.1, 10.0, 12.4, 8.1, 13.5]
    rows = [metric("loss", step, loss) for step, loss in enumerate(losses, 1)]
    assert alone(run_of([*rows, metric("epoch_loss", 4, 3.1)]), RULE)
    assert quiet(run_of([*rows, metric("epoch_loss", 4, 36.9)]), RULE)
    assert alone(run_of([*rows, metric("epoch_loss", 9, 36.9)]), RULE), "as high only since it rose"


def test_a_loss_that_falls_back_to_where_it_began_diverged_though_the_first_mean_is_as_high() -> (
    None
):
    losses = [7.0, 6.0, 5.0, 4.0, 3.0, *[2.0] * 60, *[6.9] * 12]
    rows = [metric("loss", step, loss) for step, loss in enumerate(losses, 1)]
    assert alone(run_of([*rows, metric("epoch_loss", 1, 7.0)]), RULE)


def test_two_records_far_above_all_others_are_told_and_one_is_not() -> None:
    found = one(printed([12.52, 12.52, 40.75, 39.0]), RULE)
    assert found.severity is Severity.WARNING
    assert found.confidence == "medium"
    assert found.title.startswith("The loss rose from 12.5 to 40.75 at step 3")
    assert silent(printed([12.52, 12.52, 12.4, 40.75]), RULE)


def test_the_loss_that_is_told_of_a_step_is_the_one_that_its_line_has() -> None:
    found = alone(printed([12.5, 12.4, 41.5, 39.0, 38.0, 45.0]), RULE)
    assert "to 41.5 at step 3" in found.title
    assert found.evidence[1].text == "step 3: loss 41.5"


def test_a_spike_that_comes_back_is_none() -> None:
    losses = falling(300)
    losses[200:220] = 9.0
    assert quiet(printed(losses), RULE)


@pytest.mark.parametrize("seed", range(20))
def test_noise_diverges_never(seed: int) -> None:
    random = np.random.default_rng(seed)
    assert quiet(printed(random.lognormal(0.0, 1.0, 400)), RULE)


def test_what_has_no_scale_is_not_judged() -> None:
    assert "not all above 0" in str(why(printed([0.1, -0.2, 0.3, 0.4]), RULE))
    assert "fewer than four" in str(why(printed([2.0, 2.0, 9.0]), RULE))


def test_a_launch_that_begins_anew_has_not_diverged() -> None:
    rows = [metric("loss", step, 2.0) for step in range(1, 60)]
    rows += [metric("loss", step, 9.0, segment=1) for step in range(1, 60)]
    assert quiet(run_of(rows), RULE)


def test_the_losses_of_two_engines_are_not_one_that_rises() -> None:
    rows = [metric("loss", s, 9.0 * e + 2.0, engine=e) for s in range(1, 60) for e in (0, 1)]
    assert silent(run_of(rows), RULE)


def test_a_loss_of_models_that_may_train_against_each_other_is_no_more_than_a_warning() -> None:
    rows = [
        metric("loss", s, (9.0 if s > 40 else 1.0) + s / 1000 if e == 0 else 2.0, engine=e)
        for s in range(1, 61)
        for e in (0, 1)
    ]
    found = one(run_of(rows), "loss-diverged")
    assert (found.severity, found.confidence) == (Severity.WARNING, "low")
    assert "If one trains against the other, as in a GAN, its loss may rise" in found.summary
    assert "checkpoint to go on from" not in [advice.setting for advice in found.advice]


def test_the_loss_of_a_policy_that_is_trained_for_its_reward_is_not_judged() -> None:
    losses = [metric("loss", step, 0.01 if step < 30 else 0.4) for step in range(1, 60)]
    assert one(run_of(losses), RULE)
    rewards = [metric("reward", step, 0.1 * step) for step in range(1, 60)]
    assert "trained for its reward" in str(why(run_of([*losses, *rewards]), RULE))


def test_a_loss_that_climbs_above_where_it_began_is_told_however_it_got_there() -> None:
    blown = [12.4, 12.4, 44.0, 48.0, *np.linspace(46.0, 11.6, 26), *np.linspace(11.8, 20.4, 32)]
    found = one(printed(blown), RULE)
    assert found.title == "The loss ends at 20.4, above the 12.4 that it began with"
    assert found.severity is Severity.CRITICAL
    assert [proof.text for proof in found.evidence] == ["step 1: loss 12.4", "step 62: loss 20.4"]
    back = [*blown[:31], *np.linspace(11.8, 17.0, 31)]
    assert silent(printed(back), RULE)
    assert "had learnt next to nothing" in found.summary  # 11.6 is about the 12.4 of the start
    assert not any("checkpoint" in advice.setting for advice in found.advice)


def test_two_like_losses_at_the_start_are_chance_where_neighbours_differ_by_as_much() -> None:
    """As recorded of a job whose batch is one sample."""
    noisy = np.random.default_rng(1).lognormal(-4.0, 1.5, 60)
    noisy[:2] = 0.0017, 0.0018
    noisy[-9:] = np.linspace(0.004, 0.03, 9)
    assert quiet(printed(noisy), RULE)


def test_a_short_training_that_collapses_is_told_though_its_first_losses_were_as_high() -> None:
    fell = [6.51, 4.63, 4.37, 3.88, 3.61, 3.23, 2.83, 2.65, 2.58, 2.35, 2.27, 2.32, 2.24, 2.18]
    fell += [2.25, 2.18, 2.43]
    lost = [4.31, 4.28, 4.2, 4.22, 4.24, 4.2]
    found = alone(printed(fell + lost), RULE)
    assert "rose from 2.29 to 4.31 at step 18 and stays there" in found.title
    assert quiet(printed([*fell, *lost[:3], 2.1, 2.2]), RULE)
    assert quiet(printed([*fell, 3.3, 3.2, 3.4, 3.1, 3.2, 3.0]), RULE)
