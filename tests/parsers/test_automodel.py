"""NeMo AutoModel's line a step, which states rates, and no time."""

from __future__ import annotations

from tests.loaded import run_of_text

STEP = (
    "2026-08-10 15:55:{second:02d} | INFO | root | step {step} | epoch 0 | loss 0.6974 | grad_norm "
    "1.5436 | lr 1.00e-05 | mem 24.90 GiB | tps 11278.56(1409.82/gpu) | num_label_tokens 21541\n"
)
VALIDATION = (
    '2026-08-10 15:55:{second:02d} | INFO | root | [val] name "default" | step {step} | epoch 0 | '
    "loss 9.5000 | lr 1.00e-05 | num_label_tokens 21541\n"
)


def test_a_recipes_steps_count_from_0_and_last_as_long_as_their_stamps_say() -> None:
    run = run_of_text(
        *(STEP.format(step=n, second=3 * n) for n in range(4)),
        VALIDATION.format(step=3, second=20),
    )
    assert run.steps["step"].to_list() == [0, 1, 2, 3]
    assert run.steps["loss"].to_list() == [0.6974] * 4
    assert run.findings[0].title.startswith("A step takes 3.00 s")
    assert run.meta["framework"] == "automodel"


def test_nobody_is_told_of_a_deepspeed_that_its_recipes_do_not_know() -> None:
    run = run_of_text(*(STEP.format(step=n, second=3 * n) for n in range(4)))
    assert not any("wall_clock" in one.setting for one in run.findings[0].advice)
