"""InternLM's line a step."""

from __future__ import annotations

from tests.loaded import run_of_text


def test_steps_count_from_0() -> None:
    line = "INFO train.py:317 in record_metrics -- tflops=63.5 step={} loss=10.5"
    run = run_of_text(
        *(f"{line.format(step)} tgs (tokens/gpu/second)=4500.25\n" for step in range(3))
    )
    assert run.steps["step"].tolist() == [0, 1, 2]
