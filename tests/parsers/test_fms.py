"""The loop of IBM's foundation-model-stack."""

from __future__ import annotations

from tests.loaded import run_of_text

LINES = "".join(
    f"0 {step} 2024-03-11 19:5{step // 10}:35.773642 {{'loss': '{loss}', 'avg_loss': '8.3703', "
    f"'tok/stp': '524,288.0', 's/stp': '{seconds}', 'tok/gpu/s': '3,679.5', "
    "'gpu_mem_use': '0%', 'gpu_utzn': '0%'}\n"
    for step, loss, seconds in ((19, "7.6250", "2.25"), (29, "7.5000", "2.50"))
)


def test_it_is_not_taken_for_the_trainer_and_its_times_of_a_step_are_read() -> None:
    run = run_of_text(LINES)
    assert run.meta["framework"] == "fms"
    assert run.steps["loss"].tolist() == [7.625, 7.5]
    assert run.steps["seconds"].tolist() == [2.25, 2.5]
    assert not any("wall_clock" in one.setting for one in run.findings[0].advice)
