"""Records that stand behind one another on a line, and records that were torn."""

from __future__ import annotations

import pytest

from dsprof import grammar
from dsprof.logs import Reader
from dsprof.logs.sources.source import Source

MEGATRON = (
    " iteration       10/      90 | consumed samples:          640 | lm loss: 2.500000E+00 | "
)


def read(text: str) -> list[tuple[str, float | None]]:
    reader = Reader(grammar.builtin(), Source("glued.log"))
    reader.feed(text.encode() + b"\n")
    reader.finish()
    rows = reader.log().events.to_pylist()
    return [
        (row["name"], row["value"] if row["value"] is not None else row["seconds"]) for row in rows
    ]


def test_pairs_end_where_the_next_record_begins() -> None:
    torn = " iteration       10/      90 | consumed samples:          640 | consumed tok"
    steps = "steps: 20 loss: 1.5000 iter time (s): 0.250 samples/sec: 32.000"
    names = read(torn + steps)
    assert ("step_seconds", 0.25) in names
    assert ("samples", 640.0) in names
    assert not [name for name, _ in names if "tok" in name]


def test_a_loss_of_another_trainer_behind_pairs_is_not_swallowed() -> None:
    names = read(MEGATRON + "{'loss': 0.75, 'learning_rate': 1e-05, 'epoch': 0.1}")
    assert [value for name, value in names if name == "loss"] == [2.5, 0.75]


@pytest.mark.parametrize(
    "torn", [" iteration       10/      90 | cons", "time (ms) | fw", "time (ms)"]
)
def test_a_head_without_pairs_is_no_record(torn: str) -> None:
    assert read(torn) == []


def test_a_needle_inside_a_key_ends_nothing() -> None:
    names = dict(read(MEGATRON + "elapsed time per iteration (ms): 250.0 | grad norm: 1.5 |"))
    assert names["step_seconds"] == 0.25
    assert names["grad_norm"] == 1.5


def test_the_marks_of_a_bar_behind_pairs_are_no_pairs() -> None:
    bar = " 0%|▎         | 1/4000000 [0:00:02<99:59:59,  1.90s/it]"
    for rest in ("", "{'loss': 0.75, 'epoch': 0.1}"):
        names = [name for name, _ in read(MEGATRON + bar + rest)]
        assert names[:3] == [name for name, _ in read(MEGATRON)]
        assert not [name for name in names if "/" in name]


def test_a_dict_that_is_closed_is_whole_wherever_it_stands() -> None:
    losses = "{'loss': 0.75, 'epoch': 0.1}{'loss': 0.5, 'epoch': 0.2}"
    names = read(MEGATRON + losses)
    assert [value for name, value in names if name == "epoch"] == [0.1, 0.2]
