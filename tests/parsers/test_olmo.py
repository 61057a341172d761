"""Ai2's trainers, whose lines below a step's head have no time of their own."""

from __future__ import annotations

from tests.loaded import run_of_text

LINES = "".join(
    f"[2024-04-17 09:42:{at}] INFO     [olmo.train:816, rank=0] [step={step}/1000]\n"
    f"    train/CrossEntropyLoss={loss}\n"
    "    throughput/device/batches_per_second=0.0875\n"
    for step, at, loss in ((1, 16, 11.25), (2, 28, 10.75), (3, 40, 10.5), (4, 52, 10.25))
)


def test_the_times_of_its_heads_tell_how_long_a_step_took() -> None:
    run = run_of_text(LINES)
    assert run.meta["framework"] == "olmo"
    assert run.steps["loss"].tolist() == [11.25, 10.75, 10.5, 10.25]
    assert run.steps["seconds"].tolist()[1:] == [12.0, 12.0, 12.0]
    assert run.findings[0].title.startswith("A step takes 12.0 s;")
    assert not any("wall_clock" in one.setting for one in run.findings[0].advice)
