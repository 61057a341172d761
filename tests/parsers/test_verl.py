"""verl's line a turn, where rollouts of the next turn are generated while this one trains."""

from __future__ import annotations

import pytest

from tests.loaded import run_of_text


def turn(number: int) -> str:
    return (
        f"(TaskRunner pid=7) step:{number} - actor/pg_loss:-0.25 - timing_s/wait_prev_gen:20.0 - "
        "timing_s/gen:85.0 - timing_s/sync_rollout_weights:3.0 - timing_s/update_actor:60.0 - "
        "timing_s/step:83.5\n"
    )


def test_generation_of_the_turn_before_is_no_part_of_this_one_but_the_wait_for_it_is() -> None:
    text = "".join(turn(n) for n in range(1, 7))
    run = run_of_text(text)
    rows = run.phases[run.phases["step"] == 3].set_index("name")["seconds"]
    assert rows.to_dict() == {
        "wait_for_generation": 20.0, "sync_rollout_weights": 3.0, "update_actor": 60.0,
    }  # fmt: skip
    assert run.steps["seconds"].to_list() == pytest.approx([83.5] * 6)
    assert "phases-exceed-step" not in set(run.repairs["name"])


@pytest.mark.parametrize("behind", [True, False])
def test_a_turn_lasts_as_long_as_its_validation_too_wherever_that_is_timed(behind: bool) -> None:
    """Behind each third of 9 turns of 100 s; it takes 50 s, once 2 s: no more than is untimed."""
    text = ""
    for number in range(1, 10):
        testing = {3: 50.0, 6: 50.0, 9: 2.0}.get(number, 0.0)
        said = f" - timing_s/testing:{testing}" if testing else ""
        step = 100.0 + (0.0 if behind else testing)
        text += (
            f"(TaskRunner pid=7) step:{number} - timing_s/gen:60.0 - timing_s/update_actor:37.0"
            f"{said} - timing_s/step:{step}\n"
        )
    run = run_of_text(text)
    assert run.steps["seconds"].to_list() == [100, 100, 150, 100, 100, 150, 100, 100, 102]
    assert run.repairs["name"].to_list() == ["turn-without-validation"] * behind
