"""Lines of NeMo, whose trainer is Lightning's and whose model Megatron's."""

from __future__ import annotations

from tests.findings.plants import alone
from tests.loaded import run_of_text


def test_nemo_says_for_how_long_training_stood_still_for_a_save() -> None:
    text = "".join(
        f"Training epoch 0, iteration {step}/99 | lr: 3e-05 | global_batch_size: 4 | global_step: "
        f"{step} | reduced_train_loss: 1.25 | train_step_timing in s: 0.25\n"
        + (
            "[NeMo I 2025-06-18 16:52:43 nemo_logging:393] Global Checkpoint Save : Rank: 0 : "
            f"Iteration: {step} : Start time: 1750000000.500s : Save duration: 12.500s\n"
            if step % 20 == 0
            else ""
        )
        for step in range(1, 41)
    )
    found = alone(run_of_text(text), "checkpoint-stall")
    assert found.title == "Saving checkpoints takes 71 % of the training time"
