"""Collectives that timed out: who waited, and for whom."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from dsprof.events import Severity
from dsprof.findings.advice import nccl_debug
from dsprof.findings.evidence import row_evidence, whole
from dsprof.findings.facts import Facts
from dsprof.findings.failures.absent import (
    OF_STACKS,
    advice_on,
    is_outside,
    is_sure,
    said_of_absent,
    stacks_of,
    waited_themselves,
    who_and_where,
)
from dsprof.findings.failures.call_stacks import callers, said_of_callers
from dsprof.findings.failures.ends import (
    HANG,
    first_failure,
    gave_up,
    last_launch,
    step_span,
    untold_among,
    when,
    why_untold,
)
from dsprof.findings.failures.heartbeats import OF_NAMED, named_by_heartbeats
from dsprof.findings.failures.lingering import at_exit, said_if_over
from dsprof.findings.failures.mismatched import ALIKE, mismatch, out_of_turn
from dsprof.findings.failures.overdue import dumped, overdue, said_of_stacks
from dsprof.findings.failures.saving import OF_SAVES, last_save, said_of_save
from dsprof.findings.failures.timeouts import (
    all_in_one_call,
    in_operation,
    is_before_recorder,
    layout_of_job,
    may_be_barrier,
    more_failed,
    out_of_step,
    rank_behind,
    rank_missing,
    said_if_apart,
    said_if_elsewhere,
    size_of_job,
    was_first_call,
)
from dsprof.findings.failures.traces import LEAVES, said_if_lost
from dsprof.findings.finding import Advice, Evidence, Finding, less_sure
from dsprof.findings.resources.nccl_paths import most_nodes
from dsprof.quotes import quoted
from dsprof.run.ends.problems import GAVE_UP, OF_ANOTHER
from dsprof.units import format_ranks

_FIRST: Final = " It was the first call of its group: nothing went through before."
_CUT: Final = "OpType="  #: what is left of it where a line ends within its name
_MISSED: Final = re.compile(r"Ranks? (\d+(?:, \d+)*) failed to pass monitoredBarrier")

#: How HCCL, the collectives of Ascend, says that one timed out.
_HCCL: Final = r"Notify register|hccl fftsplus|WorkHCCL"
_OF_HCCL: Final = Advice(
    "HCCL_EXEC_TIMEOUT",
    "",
    "longer, only where a rank may be that late",
    "first look for a rank that failed, or went silent, before",
)
_OF_MISSING: Final = Advice(
    "logs of the ranks that did not arrive",
    "",
    "look for what failed or took long there",
    "a monitored barrier names them",
)
_PATHS: Final = "shows by which way each rank reaches which (P2P, shared memory, network)"
_OF_PEERS: Final = Advice(
    "NCCL_P2P_DISABLE",
    "",
    "1, as a test",
    "if the collective then ends, direct copies between these GPUs do not work (IOMMU, ACS)",
)
_OF_IOMMU: Final = Advice(
    "command line of Linux",
    "",
    "iommu=pt, as RCCL asks for",
    "an IOMMU that translates what GPUs send each other can let collectives hang",
)
_OF_NETWORK: Final = Advice(
    "NCCL_SOCKET_IFNAME",
    "",
    "the network that joins the hosts",
    "NCCL may have chosen one that does not",
)
_OF_NCCL: Final = Advice(
    "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "",
    "2000, with TORCH_NCCL_DUMP_ON_TIMEOUT=1",
    "PyTorch's flight recorder (2.2 or newer) then writes where each rank stood",
)
_OF_PREPARING: Final = Advice(
    "what one rank prepares before training",
    "",
    "done in advance, or with a longer timeout",
    "the others wait for it in the first call: a data set to tokenize, a model to download",
)
_AT_BARRIER: Final = (
    " A barrier is an all-reduce of one number, as is the mean of a loss: the others may have "
    "waited there for a rank that saves, evaluates or loads for longer than the timeout allows."
)
_OF_BARRIER: Final = Advice(
    "what one rank does alone before it",
    "",
    "quicker, on all ranks, or with a longer timeout",
    "the others wait meanwhile: init_process_group(timeout=...), ddp_timeout",
)
_OF_DUMPS: Final = Advice(
    "torchfrtrace",
    "",
    "on the dumps of all ranks",
    "PyTorch's flight recorder was on: its dumps show who did not join which call",
)
_OF_GLOO: Final = Advice(
    "TORCH_DISTRIBUTED_DEBUG",
    "",
    "DETAIL",
    "a barrier in front of each collective then names the ranks that do not come",
)


def hang(facts: Facts) -> list[Finding] | str:
    """Ranks waited in a collective until the watchdog ended them."""
    row = first_failure(facts.run)
    if row is None:
        return at_exit(facts) or dumped(facts)
    if gave_up(row):
        return [_gave_up(row)]
    if row["kind"] not in HANG:
        return []
    if row["kind"] == "desync":
        return [mismatch(facts, row)]
    if row["kind"] == "overdue":
        return [overdue(facts, row)]
    rows = last_launch(facts.run)
    rows = rows[rows["kind"].isin(HANG) & (rows["kind"] != "overdue")]
    if (rows["kind"] == "stuck").all():
        found = _stuck(row, rows)
    elif _MISSED.match(str(row["text"])):
        found = _missed(rows[rows["text"].astype("str").str.match(_MISSED)])
    elif waited := waited_themselves(facts, rows[rows["kind"] == "absent"]):
        found = _left_waiting(facts, row, rows, waited)
    else:
        found = _timed_out(facts, row, rows)
    stacks = said_of_stacks(facts, int(row["segment"]))
    found = replace(found, summary=found.summary + stacks + said_if_over(facts, row))
    launches = untold_among(facts.run, row)
    return [less_sure(found, "low", why_untold(launches)) if launches else found]


def _left_waiting(facts: Facts, row: pd.Series[Any], rows: pd.DataFrame, waited: str) -> Finding:
    """Recordings of others end, and so these did not wait for a rank that hung elsewhere."""
    return Finding(
        rule="hang",
        severity=Severity.CRITICAL,
        title=f"Training hung{when(row)}: {waited}",
        summary="The other recorded ranks ended meanwhile: they left early, or had waited in "
        "another collective. Medium confidence: recordings do not say which.",
        steps=step_span(row),
        evidence=_lines(rows) + stacks_of(facts, rows[rows["kind"] == "absent"]),
        advice=(ALIKE, OF_STACKS),
        confidence="medium",
    )


def _timed_out(facts: Facts, row: pd.Series[Any], rows: pd.DataFrame) -> Finding:
    rows = rows[rows["kind"] != "stuck"]  # what happened to those that waited, and no timeout
    absent = rows[rows["kind"] == "absent"]
    behind = whole(absent["rank"].iloc[0]) if len(absent) == 1 else rank_behind(facts, rows)
    waiting = _who_waited(rows)
    if apart := out_of_step(facts, rows):
        save = last_save(facts, row)
        more = OF_SAVES[:1] if save is not None else (_more_of(facts, rows),)
        found = out_of_turn(row, apart, more)
        return replace(
            found, summary=found.summary + said_of_save(save, row), evidence=_lines(rows)
        )
    if behind is None and all_in_one_call(facts, rows, waiting):
        return _all_waited(facts, row, rows)
    missing = rank_missing(facts, waiting) if behind is None and more_failed(facts, rows) else None
    inside = in_operation(facts, rows[(rows["rank"] != behind).fillna(value=True)])
    untold = absent.empty and behind is None and missing is None
    named, said_of_named, proof = named_by_heartbeats(facts, row) if untold else ("", "", ())
    blame = (
        f"{said_of_named} Medium confidence: it is what HCCL takes for the likeliest cause."
        if named
        else f"Rank {missing} alone reports none: it never arrived. Medium confidence: it may have "
        "been ended before it could."
        if missing is not None
        else f"Rank {behind} had started the fewest collectives: it is the one that did not come."
        f"{said_if_elsewhere(facts, rows, behind, inside)}"
        if behind is not None
        else "A rank that never arrived may be one of those that report none, or of those that "
        "this source does not show. Medium confidence: these lines do not say which one."
    )
    surely = absent.empty or is_sure(facts, absent)
    traces = said_if_lost(facts.run, inside) if absent.empty else ""
    first = absent.empty and behind is None and was_first_call(facts, rows)
    sure = behind is not None and surely
    hung = "Training hung" if surely else "Training stood still"
    save = last_save(facts, row) if absent.empty and not named else None
    barrier = absent.empty and not first and save is None and may_be_barrier(rows)
    behind = missing if behind is None else behind
    return Finding(
        rule="hang",
        severity=Severity.CRITICAL,
        title=(f"A collective timed out{inside}" if absent.empty else hung)
        + when(row)
        + ", behind a save" * (save is not None)
        + who_and_where(facts, absent)
        + f": rank {behind} did not arrive" * (absent.empty and behind is not None)
        + f": HCCL names {named}" * bool(named),
        summary=f"{_report(waiting, len(rows))} a timeout.{said_if_apart(facts, rows)}"
        f"{said_of_callers(callers(facts, rows))} {blame}{traces}{_FIRST * first}"
        f"{_AT_BARRIER * barrier}"
        f"{said_of_save(save, row)}"
        if absent.empty
        else said_of_absent(facts, absent),
        ranks=(behind,) if behind is not None else (),  # those that waited do not stand out
        steps=step_span(row),
        evidence=_lines(rows) + proof + stacks_of(facts, absent),
        advice=(*(nccl_debug(facts, _PATHS) or _of_links(facts)), _OF_PREPARING)
        if first
        else (
            *_of_iommu(facts),
            *(
                (OF_NAMED if named else _more_of(facts, rows),)
                if absent.empty
                else advice_on(facts, absent)
            ),
            *((LEAVES,) if traces else ()),
            *(OF_SAVES if save is not None else ()),
            *((_OF_BARRIER,) if barrier else ()),
            *((ALIKE,) if save is None and not is_outside(facts, absent) else ()),
        ),
        confidence="high" if sure else "medium",
    )


def _who_waited(rows: pd.DataFrame) -> tuple[int, ...]:
    """The ranks that a collective timed out on: their own words, or those of another."""
    named = rows["text"].astype("str").str.extract(OF_ANOTHER)[0]
    ranks = named.where(named.notna(), rows["rank"]).dropna()
    return tuple(sorted({int(rank) for rank in ranks}))


def _more_of(facts: Facts, rows: pd.DataFrame) -> Advice:
    """What tells more of where the ranks stood."""
    said = rows["text"].astype("str")
    if callers(facts, rows):
        return _OF_DUMPS
    if said.str.contains(_HCCL).all():
        return _OF_HCCL
    if said.str.contains(GAVE_UP).all():
        return _OF_GLOO
    if facts.on_cpu or is_before_recorder(facts, rows):  # on a CPU, NCCL has no part in it
        return OF_STACKS
    return _OF_NCCL


def _all_waited(facts: Facts, row: pd.Series[Any], rows: pd.DataFrame) -> Finding:
    """No rank is missing, so that none can be blamed for not coming."""
    inside, first = in_operation(facts, rows), was_first_call(facts, rows)
    return Finding(
        rule="hang",
        severity=Severity.CRITICAL,
        title=f"A collective timed out{inside}{when(row)}, with every rank in it",
        summary=f"All {size_of_job(facts):,} ranks of the job had called it: none of them skipped "
        f"it.{_FIRST * first}{said_of_callers(callers(facts, rows))} Either NCCL does not get data "
        "from one to another, or a GPU did not finish its work before it. Medium confidence: these "
        "lines do not say which.",
        steps=step_span(row),
        evidence=_lines(rows),
        advice=(
            *nccl_debug(facts, _PATHS),
            *(_of_links(facts) if first else (_more_of(facts, rows),)),
        ),
        confidence="medium",
    )


def _of_links(facts: Facts) -> tuple[Advice, ...]:
    """What may keep data from getting from one rank to another."""
    nodes = layout_of_job(facts).nodes or most_nodes(facts)
    if nodes is None:
        return *_of_iommu(facts), _OF_PEERS, _OF_NETWORK
    return *_of_iommu(facts), _OF_PEERS if nodes == 1 else _OF_NETWORK


def _of_iommu(facts: Facts) -> tuple[Advice, ...]:
    """What RCCL warned of, if it did."""
    return (_OF_IOMMU,) if (last_launch(facts.run)["kind"] == "iommu").any() else ()


def _lines(rows: pd.DataFrame) -> tuple[Evidence, ...]:
    """What ranks say that they waited in; where that is cut off, that they waited."""
    cut = {_CUT: "a collective timed out, whose name is cut off"}
    said = ((row, quoted(row["text"], 200)) for _, row in rows.head(4).iterrows())
    return tuple(row_evidence(row, cut.get(text, text)) for row, text in said)


def _missed(rows: pd.DataFrame) -> Finding:
    """Rank 0 of a monitored barrier names who did not come: all of them, or the first one."""
    all_of_them = rows["text"].astype("str").str.startswith("Ranks ")
    row = rows.iloc[int(all_of_them.argmax())]  # the first one if there are none
    ranks = tuple(int(rank) for rank in _MISSED.findall(str(row["text"]))[0].split(", "))
    return Finding(
        rule="hang",
        severity=Severity.CRITICAL,
        title=f"A barrier timed out{when(row)}: {format_ranks(ranks)} did not arrive",
        summary="Rank 0 names whom it waited for in vain"
        + (
            ". "
            if all_of_them.any()
            else ", and stops at the first one: others may be missing, too. "
        )
        + "Whether they failed or were only late this line does not say.",
        ranks=ranks,
        steps=step_span(row),
        evidence=(row_evidence(row, quoted(row["text"], 200)),),
        advice=(_OF_MISSING, ALIKE),
        confidence="high",
    )


def _gave_up(row: pd.Series[Any]) -> Finding:
    """Gloo names neither the collective nor the rank that it waited for."""
    rank = whole(row["rank"])
    return Finding(
        rule="hang",
        severity=Severity.CRITICAL,
        title=f"A collective timed out{when(row)}",
        summary=f"{'A rank' if rank is None else f'Rank {rank}'} waited in it longer than gloo's "
        "timeout allows, and ended. Another rank did not come, or was in another collective, as "
        "where ranks have unequally many batches. Medium confidence: the message does not say "
        "which rank that is.",
        steps=step_span(row),
        evidence=(row_evidence(row, quoted(row["text"], 200)),),
        advice=(ALIKE,),
        confidence="medium",
    )


def _stuck(row: pd.Series[Any], rows: pd.DataFrame) -> Finding:
    """PyTorch's monitor ended processes whose watchdog stood still: no collective timed out."""
    ranks = tuple(sorted({int(rank) for rank in rows["rank"].dropna()}))
    of = f" of {len(ranks):,} ranks" if len(ranks) > 1 else f" of rank {ranks[0]}" if ranks else ""
    return Finding(
        rule="hang",
        severity=Severity.CRITICAL,
        title=f"NCCL's watchdog{of} was stuck{when(row)}",
        summary="PyTorch ends a process whose watchdog makes no progress. It was held by a CUDA or "
        "NCCL call that does not return, or by a thread that kept Python's lock (the GIL). Medium "
        "confidence: these lines do not say which, nor whether another rank was the cause.",
        ranks=ranks,
        steps=step_span(row),
        evidence=_lines(rows),
        advice=(
            Advice("py-spy dump --pid", "", "of each rank, while it hangs", "shows who holds what"),
            Advice(
                "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
                "",
                "longer",
                "only where minutes in one call are usual: compiling, loading, saving",
            ),
        ),
        confidence="medium",
    )


def _report(ranks: tuple[int, ...], rows: int) -> str:
    if len(ranks) == 1:
        return f"Rank {ranks[0]} reports"
    several = len(ranks) or rows
    return f"{several:,} ranks report" if several > 1 else "One rank reports"
