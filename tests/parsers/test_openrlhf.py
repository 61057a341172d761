"""OpenRLHF's line a turn: what it holds, and what of it is a part of the turn."""

from __future__ import annotations

from dsprof.run import Run
from tests.loaded import run_of_text

TURNS = range(1, 7)


def turn(number: int, mark: str, total: float) -> str:
    return (
        f"(PPOTrainer pid=7) INFO ppo_trainer.py:547] {mark}Global step {number}: "
        f"{{'policy_loss': {number}.5, 'reward': 0.25, 'timing/make_experience': 4.0, "
        "'timing/ppo_train': 30.0, 'timing/broadcast': 2.0, 'timing/generation': 40.0, "
        f"'timing/step_total': {total}}}\n"
    )


def of_step(run: Run, step: int) -> dict[str, float]:
    rows = run.phases[run.phases["step"] == step]
    return {str(n): float(s) for n, s in zip(rows["name"], rows["seconds"], strict=True)}


def test_a_turn_is_divided_into_generating_scoring_training_and_sending() -> None:
    run = run_of_text(*(turn(n, "✨ ", 76.0) for n in TURNS))
    assert run.meta["framework"] == "openrlhf"
    assert run.steps["seconds"].eq(76.0).all()
    assert run.steps["loss"].to_list() == [n + 0.5 for n in TURNS]
    assert of_step(run, 3) == {
        "generate": 40.0, "make_experience": 4.0, "ppo_train": 30.0, "update_weights": 2.0,
    }  # fmt: skip


def test_rollouts_that_are_generated_beside_training_are_no_part_of_a_turn() -> None:
    run = run_of_text(*(turn(n, "", 41.0) for n in TURNS))
    assert run.steps["seconds"].eq(41.0).all()
    assert "generate" not in of_step(run, 3)
    assert run.events.loc[run.events["name"] == "generation_seconds", "seconds"].eq(40.0).all()
    assert not run.repairs["name"].isin(["phases-exceed-step"]).any()


def test_training_is_told_by_the_timers_of_the_engines_where_they_are_printed() -> None:
    line = (
        "[2024-05-01 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | "
        "fwd: 4000.00 | bwd: 9000.00 | bwd_inner: 8000.00 | bwd_allreduce: 1000.00 | step: 500.00\n"
    )
    run = run_of_text(*(line + line + turn(n, "✨ ", 76.0) for n in TURNS))
    assert run.steps["step"].to_list() == list(TURNS)
    told = of_step(run, 3)
    assert told["forward"] == 8.0
    assert told["backward_allreduce"] == 2.0
    assert "ppo_train" not in told
