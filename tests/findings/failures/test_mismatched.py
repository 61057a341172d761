"""Ranks that called collectives that do not match."""

from __future__ import annotations

import pytest

from tests.findings.plants import alone
from tests.loaded import run_of_text
from tests.run.ends.test_unclosed import LATER, inside, process, run_of, standing


def test_where_every_rank_waited_it_is_told_and_none_is_blamed() -> None:
    waits = [
        process(rank, alive_at=LATER, in_flight={"name": call, "seq": 7, "at": LATER - 28 * 10**9})
        for rank, call in enumerate(("all_reduce", "barrier"))
    ]
    found = alone(run_of(waits[0] | inside("backward", "compute"), waits[1]), "hang")
    assert found.title == "Training hung after step 10: ranks waited in different collectives"
    assert found.summary.startswith(
        "Rank 0 waited in all_reduce, inside backward, for 28.0 s; rank 1 waited in barrier for "
        "28.0 s. Every rank waited, so that none is missing."
    )
    assert (found.ranks, found.confidence) == ((), "medium")
    assert [advice.setting for advice in found.advice] == [
        "py-spy dump --pid", "branches that depend on data or rank",
    ]  # fmt: skip


def test_the_lines_that_called_different_collectives_are_told() -> None:
    waits = [
        process(rank, alive_at=LATER, in_flight={"name": call, "seq": 7, "at": LATER - 28 * 10**9})
        | {"stands": True}
        for rank, call in enumerate(("all_reduce", "barrier"))
    ]
    lines = ("evaluate (./train.py:40)", "log (./train.py:43)")
    rows = [standing(rank, f"wait (torch/a.py) < {line}", 12.5) for rank, line in enumerate(lines)]
    found = alone(run_of(*waits, rows=rows), "hang")
    assert found.title.endswith(
        ": ranks waited in different collectives: rank 0 in evaluate (train.py:40), rank 1 in log "
        "(train.py:43)"
    )
    assert "for 28.0 s, called by evaluate (train.py:40); rank 1" in found.summary
    assert [advice.setting for advice in found.advice] == ["branches that depend on data or rank"]
    assert len(found.evidence) == 3
    one = alone(run_of(*waits, rows=rows[:1]), "hang")
    assert one.title.endswith(": ranks waited in different collectives")
    assert one.advice[0].setting == "py-spy dump --pid"


def test_a_rank_that_waits_in_a_save_of_its_own_sends_to_where_it_is_called() -> None:
    waits = [
        process(rank, alive_at=LATER, in_flight={"name": call, "seq": 7, "at": LATER - 28 * 10**9})
        for rank, call in enumerate(("barrier", "all_reduce"))
    ]
    save = inside("checkpoint", "checkpoint")
    found = alone(run_of(waits[0] | save, waits[1] | inside("backward", "compute")), "hang")
    assert found.advice[1].setting == "save_checkpoint"
    both = alone(run_of(*[waiting | save for waiting in waits]), "hang")
    assert "save_checkpoint" not in [advice.setting for advice in both.advice]


_CALLED = "Rank {} is running collective: CollectiveFingerPrint(SequenceNumber=7, OpType={}"


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (
            ("REDUCE_SCATTER, TensorShape=[64, 8], T", "REDUCE_SCATTER, TensorShape=[3200, 8], T"),
            "rank 1 called REDUCE_SCATTER on 3,200 x 8 numbers. Their tensors differ.",
        ),
        (
            ("ALLREDUCE, TensorShape=[64], T", "ALLREDUCE"),
            "rank 1 called ALLREDUCE. Their tensors, or their turns, differ.",
        ),
        (
            ("BARRIER", "BARRIER"),
            "rank 0 called BARRIER, rank 1 called BARRIER. Their tensors, or their turns, differ.",
        ),
    ],
)
def test_calls_of_one_name_that_pytorch_compared_are_told_with_their_shapes(
    calls: tuple[str, str], said: str
) -> None:
    told = ", but ".join(_CALLED.format(rank, call) + ")" for rank, call in enumerate(calls))
    text = f"RuntimeError: Detected mismatch between collectives on ranks. {told}"
    assert said in alone(run_of_text(f"[rank0]: {text}\n"), "hang").summary


def test_whom_torchfrtrace_finds_is_named_with_what_it_found() -> None:
    unlike = "Expected input sizes: '[[1025]]' does not match found input sizes: '[[4096]]'"
    each = [
        f"Culprit rank {rank}; Error type: SIZE_OR_SYNTAX_MISMATCH, {unlike}" for rank in (2, 6)
    ]
    found = alone(run_of_text(f"error msg: {', '.join(each)}\n"), "hang")
    assert found.title == "Ranks 2 and 6 called a collective unlike that of the others"
    assert found.ranks == (2, 6)
    assert f"{unlike}." in found.summary
