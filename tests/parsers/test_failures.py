"""How jobs fail, in shapes that tracebacks and messages have where people paste or cut them."""

from __future__ import annotations

import pandas as pd

from tests.loaded import run_of_text


def causes(*lines: str) -> list[tuple[str, str]]:
    """Kind and text of what is the first cause of each failure in these lines."""
    problems = run_of_text(*(f"{line}\n" for line in lines)).problems
    cause = problems[problems["root_cause"]]
    return [*zip(cause["kind"], cause["text"], strict=True)]


def problems(*lines: str) -> pd.DataFrame:
    """All problems in these lines."""
    return run_of_text(*(f"{line}\n" for line in lines)).problems


def test_a_traceback_in_a_box_of_rich_ends_with_the_exception_below_the_box() -> None:
    assert causes(
        "╭────── Traceback (most recent call last) ──────╮",
        "│ /data/train.py:353 in <module>                │",
        "│ ❱ 353 │   main()                              │",
        "╰───────────────────────────────────────────────╯",
        "AssertionError: the sizes of two batches are not",
        "equal",
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 "
        "(pid: 5120) of binary: /opt/venv/bin/python",
    ) == [("exception", "AssertionError: the sizes of two batches are not")]


def test_a_traceback_whose_head_was_cut_off_is_read_by_its_frames() -> None:
    assert causes(
        "    engine.step()",
        '  File "/data/train/engine.py", line 40, in step',
        "    raise ValueError('no')",
        "ValueError: no",
    ) == [("exception", "ValueError: no")]


def test_each_rank_has_its_own_traceback_also_without_heads() -> None:
    found = problems(
        '[rank1]:   File "/data/train/engine.py", line 40, in step',
        '[rank0]:   File "/data/train/engine.py", line 41, in step',
        "[rank1]: ValueError: one",
        "[rank0]: ValueError: none",
    )
    assert found[["rank", "text"]].to_numpy().tolist() == [
        [1, "ValueError: one"], [0, "ValueError: none"]
    ]  # fmt: skip


def test_a_frame_that_a_stack_dump_names_is_no_exception() -> None:
    assert problems(
        "Thread 0x00007f2 (most recent call first):",
        '  File "/usr/lib/python3.11/threading.py", line 331 in wait',
        '  File "/data/train/loop.py", line 12, in log',
        "{'loss': 2.1, 'epoch': 0.1}",
    ).empty
