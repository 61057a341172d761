"""Which phases are a pipeline's waiting."""

from __future__ import annotations

import pandas as pd

from dsprof.analysis.breakdown import pipeline_phases


def test_calls_that_a_recording_saw_inside_a_pipelines_instructions_are_its_waiting() -> None:
    names = [
        "pipe_recv_grad", "recv_in_pipe_recv_grad", "send_in_pipe_send_output",
        "forward-recv", "all_reduce_in_reduce_grads", "forward",
    ]  # fmt: skip
    table = pd.DataFrame({"seconds": 1.0}, index=names)
    assert list(pipeline_phases(table).index) == names[:4]
