"""slime's two lines a turn: that of the rollouts, and that of the training side."""

from __future__ import annotations

from tests.loaded import run_of_text


def test_the_whole_of_a_turn_is_waiting_and_training_and_the_line_of_its_rollouts_is_no_turn() -> (
    None
):
    text = "".join(
        f"(RolloutManager pid=7) perf {turn}: {{'perf/rollout_time': 95.5}}\n"
        f"(Train pid=9) perf {turn}: {{'perf/train_wait_time': 60.0, 'perf/log_probs_time': 8.0, "
        "'perf/actor_train_time': 30.0, 'perf/train_time': 40.0, 'perf/step_time': 100.0}\n"
        for turn in range(1, 6)
    )
    run = run_of_text(text)
    assert run.steps["seconds"].to_list() == [100.0] * 5
    assert run.steps["mixed"].to_list() == [38.0] * 5
    assert run.meta["framework"] == "slime"


def test_what_moving_the_model_takes_between_turns_is_told_of_the_waiting() -> None:
    text = "".join(
        f"(Train pid=9) perf {turn}: {{'perf/sleep_time': 11.0, 'perf/update_weights_time': 1.0, "
        "'perf/wake_up_time': 4.0, 'perf/train_wait_time': 80.0, 'perf/actor_train_time': 20.0, "
        "'perf/train_time': 20.0, 'perf/step_time': 100.0}\n"
        for turn in range(1, 6)
    )
    run = run_of_text(text)
    assert run.steps["offload"].to_list() == [15.0] * 5
    (moved,) = (finding for finding in run.findings if finding.rule == "offload-bound")
    assert moved.title == "15 % of a step is moving data off and onto the GPU"
    assert moved.advice[0].setting == "rollouts"
    assert moved.gain == (0.0, 15.0)
    (waited, *_) = (finding for finding in run.findings if finding.rule == "unaccounted-time")
    assert waited.seconds_per_step == 64.0
