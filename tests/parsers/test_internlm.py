"""InternLM's line a step."""

from __future__ import annotations

from tests.loaded import run_of_text


def test_steps_count_from_0() -> None:
    line = "INFO train.py:317 in record_metrics -- tflops=63.5 step={} loss=10.5"
    run = run_of_text(
        *(f"{line.format(step)} tgs (tokens/gpu/second)=4500.25\n" for step in range(3))
    )
    assert run.steps["step"].tolist() == [0, 1, 2]


def test_what_of_a_step_is_neither_forward_nor_backward_is_told_by_its_time_stamps() -> None:
    run = run_of_text(
        *(
            f"2023-07-07 12:{step // 10:02}:{6 * (step % 10):02},250\tINFO train.py:317 in "
            f"record_metrics -- tflops=63.2{step:09},step={step},loss=10.5{step:09},tgs "
            "(tokens/gpu/second)=4500.25,lr=6e-07,num_consumed_tokens=4096,fwd_bwd_time=4.5\n"
            for step in range(12)
        )
    )
    assert run.steps["mixed"].tolist() == [4.5] * 12
    assert run.findings[0].title == "25 % of a step is in no timer, by the time stamps of the lines"
