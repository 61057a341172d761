"""Ranks that called collectives that do not match."""

from __future__ import annotations

import re
from typing import Any, Final

import pandas as pd

from dsprof.events import Class, Severity
from dsprof.findings.evidence import row_evidence, whole
from dsprof.findings.facts import Facts
from dsprof.findings.failures.absent import OF_STACKS
from dsprof.findings.failures.ends import step_span, when
from dsprof.findings.failures.stood import Stood, proofs, said_of_all, stood
from dsprof.findings.failures.timeouts import OutOfStep
from dsprof.findings.finding import Advice, Finding
from dsprof.quotes import quoted
from dsprof.run.ends.exits import APART
from dsprof.units import format_ranks, listed

_RUNNING: Final = re.compile(
    r"Rank (\d{1,6}) is running collective: "
    r"CollectiveFingerPrint\((?:SequenceNumber=\d{1,19}(?:, )?)?OpType=(\w{1,40})"
    r"(?:, TensorShape=\[([\d, ]{1,60})\])?"
)
_CULPRIT: Final = re.compile(r"Culprit rank (\d{1,6});")
_HOW: Final = re.compile(r"Expected .{1,200}? does not match found .{1,200}?'(?=,|$)")
_FEW: Final = 3  #: places that a title has room for
ALIKE: Final = Advice(
    "branches that depend on data or rank",
    "",
    "the same collectives on every rank",
    "a rank that skips one leaves the others waiting",
)
SAVES: Final = Advice(
    "save_checkpoint",
    "",
    "called on every rank",
    "a save of sharded states waits for all ranks: one that calls it alone waits for ever",
)


def mismatch(facts: Facts, row: pd.Series[Any]) -> Finding:
    """As PyTorch found, or as the recordings show where each rank waited."""
    if str(row["text"]).startswith(APART):
        return _waited(facts, row)
    return _traced(row) if _CULPRIT.match(str(row["text"])) else _compared(row)


def _waited(facts: Facts, row: pd.Series[Any]) -> Finding:
    launch = stood(facts, whole(row["segment"]) or 0)
    every = said_of_all(launch)
    look = () if all(one.standing for one in launch) else (OF_STACKS,)
    return Finding(
        rule="hang",
        severity=Severity.CRITICAL,
        title=f"Training hung{when(row)}: ranks waited in different collectives{_codes(launch)}",
        summary=f"{every[0].upper()}{every[1:]}. Every rank waited, so that none is missing. One "
        "rank skipped a collective, or called an extra one, as where ranks have unequally many "
        "batches. Medium confidence: calls of different groups may also wait for a broken link.",
        steps=step_span(row),
        evidence=(row_evidence(row, quoted(row["text"], 200)), *proofs(launch)),
        advice=(*look, *((SAVES,) if _saves_alone(launch) else ()), ALIKE),
        confidence="medium",
    )


def _codes(launch: list[Stood]) -> str:
    """Behind a title: `: rank 0 in evaluate (train.py:40), rank 1 in log (train.py:43)`."""
    lines: dict[str, list[int]] = {}
    for one in launch:
        if one.standing is None or one.rank is None:
            return ""
        lines.setdefault(one.standing.line, []).append(one.rank)
    said = [f"{format_ranks(ranks)} in {line}" for line, ranks in lines.items()]
    return f": {', '.join(said)}" if 1 < len(said) <= _FEW else ""


def out_of_turn(row: pd.Series[Any], told: OutOfStep, more: tuple[Advice, ...]) -> Finding:
    """As the numbers of the calls show that timed out."""
    who = listed([f"{format_ranks(ranks)} {name}" for name, ranks in told.ranks.items()])
    return Finding(
        rule="hang",
        severity=Severity.CRITICAL,
        title=f"Ranks called different collectives{when(row)}: {who}",
        summary=f"Each waits in call {told.call:,} of the same process group until it times out. "
        "One rank skipped a collective, or called an extra one, there or before, as where ranks "
        "have unequally many batches.",
        steps=step_span(row),
        advice=(*more, ALIKE),
        confidence="high",
    )


def _saves_alone(launch: list[Stood]) -> bool:
    """Whether some ranks wait inside a save, and others are in none."""
    return len({one.class_ == Class.CHECKPOINT and not one.over for one in launch}) > 1


def _traced(row: pd.Series[Any]) -> Finding:
    """As torchfrtrace found in what PyTorch's flight recorder wrote of each rank."""
    text = str(row["text"])
    ranks = tuple(sorted({int(rank) for rank in _CULPRIT.findall(text)}))
    how = _HOW.search(text)
    return Finding(
        rule="hang",
        severity=Severity.CRITICAL,
        title=f"{format_ranks(ranks)[:1].upper()}{format_ranks(ranks)[1:]} called a collective "
        "unlike that of the others",
        summary="torchfrtrace says so, which compares what the ranks called."
        + (f" {how[0]}." if how else "")
        + " A rank that skipped a call, or made one more, is compared with another one of theirs.",
        ranks=ranks,
        evidence=(row_evidence(row, quoted(text, 300)),),
        advice=(ALIKE,),
        confidence="high",
    )


def _compared(row: pd.Series[Any]) -> Finding:
    """PyTorch compared what ranks called, and ended them before they waited for each other."""
    told = _RUNNING.findall(str(row["text"]))
    calls = ", ".join(
        f"rank {rank} called {operation}{_of_shape(shape)}" for rank, operation, shape in told
    )
    same = len({operation for _, operation, _ in told}) == 1
    shapes = {shape for *_, shape in told if shape}  # that of a message cut short is unknown
    differ = (
        "Their tensors differ." if len(shapes) > 1 else "Their tensors, or their turns, differ."
    )
    return Finding(
        rule="hang",
        severity=Severity.CRITICAL,
        title=f"Ranks called collectives that do not match{when(row)}",
        summary=(f"As the message says, {calls}. " if calls else "")
        + differ * same
        + ("One rank skipped a collective, or called an extra one." * (not same)),
        steps=step_span(row),
        evidence=(row_evidence(row, quoted(row["text"], 300)),),
        advice=(ALIKE,),
        confidence="high" if calls else "medium",
    )


def _of_shape(shape: str) -> str:
    sizes = " x ".join(f"{int(size):,}" for size in re.findall(r"\d+", shape))
    return f" on {sizes} numbers" if sizes else ""
