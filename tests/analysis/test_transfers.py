"""What messages between stages take, from when each side waits for them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from dsprof import load
from dsprof.analysis.transfers import transfers
from dsprof.recording import Writer
from tests.recording.recorded import MS, header

Message = tuple[str, str, int, int]  #: phase, operation, ms held up by it, bytes


def moments_of(folder: Path, *ranks: list[Message], count: int = 1) -> pd.DataFrame:
    """Of a step in which each rank has these messages one after the other."""
    for rank, said in enumerate(ranks):
        writer, at = Writer.create(folder, header(rank, world=len(ranks))), MS
        for phase, operation, ms, size in said:
            name = writer.name(operation, writer.name(phase, 0, "wait"))
            writer.collective(name, 0, at, at, ms * MS, 1, 0, size, count)
            at += ms * MS
        writer.step(1, MS, at)
        writer.close()
    run = load(folder)
    return run.moments(run.steps)


def sends(ms: int, size: int = 64) -> Message:
    return "pipe_send_output", "send", ms, size


def receives(ms: int, size: int = 64) -> Message:
    return "pipe_recv_input", "recv", ms, size


def test_a_message_takes_what_it_holds_up_the_side_that_came_later(tmp_path: Path) -> None:
    last = [receives(30), receives(3), ("pipe_send_grad", "send", 9, 32)]
    moments = moments_of(
        tmp_path, [sends(4), sends(50), ("pipe_recv_grad", "recv", 7, 32)], last
    )  # fmt: skip
    found = transfers(moments, [0, 1])
    assert found["seconds"].tolist() == pytest.approx([4e-3, 3e-3, 7e-3])
    assert found[["rank", "peer", "bytes"]].to_numpy().tolist() == [
        [0, 1, 64], [0, 1, 64], [1, 0, 32],
    ]  # fmt: skip


def test_a_stage_in_the_middle_has_messages_of_both_neighbours(tmp_path: Path) -> None:
    moments = moments_of(tmp_path, [sends(2)], [receives(5), sends(9)], [receives(6)])
    found = transfers(moments, [0, 1, 2])
    assert found["seconds"].tolist() == pytest.approx([2e-3, 6e-3])
    assert found["peer"].tolist() == [1, 2]


def test_ranks_of_another_replica_are_no_neighbours(tmp_path: Path) -> None:
    moments = moments_of(tmp_path, [sends(2)], [sends(7)], [receives(5)], [receives(8)])
    assert transfers(moments, [0, 2])["seconds"].tolist() == pytest.approx([2e-3])


@pytest.mark.parametrize(
    "there", [[], [receives(3)], [receives(3), receives(3, size=8)], [receives(3)] * 3]
)
def test_messages_whose_other_side_is_not_known_are_left_out(
    there: list[Message], tmp_path: Path
) -> None:
    found = transfers(moments_of(tmp_path, [sends(4), sends(4)], there), [0, 1])
    assert len(found) == (len(there) == 2), "those of one size"


def test_rows_that_stand_for_several_messages_tell_nothing_of_one(tmp_path: Path) -> None:
    assert transfers(moments_of(tmp_path, [sends(4)], [receives(3)], count=2), [0, 1]).empty
