"""Lines of Prismatic's training, and of OpenVLA's."""

from __future__ import annotations

import json

import pytest

from tests.loaded import run_of_text

_SETUP = """\
07/29 [08:16:20] INFO     | >> FSDP Full-Shard Strategy => Finalized Training Setup:  fsdp.py:240
                          |-> Global (Effective) Batch Size = 192
                          |-> Per-Device Batch Size = 32
                          |-> Distributed World Size = 6
                          |-> Gradient Accumulation Steps = 1
"""


def _bar(title: int, step: int) -> str:
    passed = 8 * step
    return (
        f"=>> [Epoch 000] Global Step {title:06d} =>> LR :: 0.000020 - Loss :: 1.5000:   2%|2 "
        f"| {step}/900 [{passed // 60:02d}:{passed % 60:02d}<2:00:00,  8.00s/it]"
    )


def test_the_bar_of_openvla_counts_steps_and_moves_before_its_title_does() -> None:
    drawn = [(title, step) for step in range(1, 60) for title in (step - 1, step)]
    run = run_of_text(_SETUP + "\r".join(_bar(*one) for one in drawn) + "\n")
    assert run.meta["framework"] == "prismatic"
    assert run.meta["world_size"] == 6
    assert run.meta["train_batch_size"] == 192
    assert run.steps["step"].max() == 59
    assert run.steps["seconds"].dropna().tolist() == pytest.approx([8.0] * 29)
    assert run.findings[0].title.startswith("A step takes 8.00 s")


def test_the_file_of_metrics_of_openvla_tells_how_long_each_step_took() -> None:
    told = [
        {"Step": n, "Epoch": 0, "Loss": 1.5, "L1 Loss": 0.5, "Learning Rate": 2e-5, "Step Time": 4}
        for n in range(1, 31)
    ]
    lines = (json.dumps({f"VLA Train/{key}": one[key] for key in one}) for one in told)
    run = run_of_text("\n".join(lines) + "\n")
    assert run.meta["framework"] == "prismatic"
    assert run.steps["seconds"].tolist() == [4.0] * 30
