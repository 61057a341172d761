"""A rank, or the whole job, that ended by an error: which rank was first, and why."""

from __future__ import annotations

import re
from typing import Any, Final

import pandas as pd

from dsprof.events import Severity
from dsprof.findings.advice import not_yet_debugged
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.failures.cures import cures
from dsprof.findings.failures.ends import (
    HANG,
    OOM,
    breaks_off,
    first_failure,
    gave_up,
    launch,
    of_ssh,
    ranks_of,
    said_among_others,
    said_of,
    signal_behind,
    signal_of,
    stands_alone,
    step_span,
    sure_of,
    when,
)
from dsprof.findings.failures.error_codes import code_meant
from dsprof.findings.failures.exceptions import OTHER_LOGS
from dsprof.findings.failures.launcher import Dead, dead_rank, evidence_of, named, said_of_named
from dsprof.findings.failures.lingering import said_if_over
from dsprof.findings.failures.loading import said_of_loading
from dsprof.findings.failures.not_found import (
    against_missing,
    missing_of,
    never_started,
    said_of_missing,
)
from dsprof.findings.failures.oom import for_host_memory
from dsprof.findings.failures.overdue import said_of_cancelled
from dsprof.findings.failures.raised import detail_of, said_of_place
from dsprof.findings.failures.stacks import crashed_in
from dsprof.findings.failures.stood import said_of_dead
from dsprof.findings.finding import Advice, Finding
from dsprof.quotes import quoted, quoted_in_title
from dsprof.run.ends.harmless import OVER
from dsprof.run.table import among, where
from dsprof.units import format_seconds

_CRASHES: Final = ("SIGSEGV", "SIGFPE", "SIGILL")  #: behind which nobody says where
_OF_STACK: Final = Advice(
    "PYTHONFAULTHANDLER", "", "1, for one run", "a crash then prints where each thread stood"
)
_OF_LAUNCHER: Final = re.compile(r"exits with return code|exitcode ")  #: DeepSpeed's, torchrun's
_ERRORS: Final = 126  #: exit codes up to here are a program's own
_OF_TRACEBACK: Final = Advice(
    "deepspeed --enable_each_rank_log, torchrun --log-dir --tee 3",
    "",
    "a folder, for one run",
    "each rank's own output shows its traceback, which this source lacks: the launcher only says "
    "how the process ended",
)
_OF_PYDANTIC: Final = "pydantic_core._pydantic_core."  #: whose errors have room for more without
_OF_STDERR: Final = "LSF wrote there what the job's processes said to stderr, as tracebacks are"
_PORT: Final = re.compile(r"\bport: (\d{1,5})\b")


def rank_died(facts: Facts) -> list[Finding] | str:
    """A rank, or the whole job, ended by an error that is neither memory nor a hang."""
    row = first_failure(facts.run)
    if row is None:
        return _ended_by_launcher(facts) or _store_lost(facts) or never_started(facts)
    if row["kind"] in (*OOM, *HANG) or gave_up(row):
        return []
    who, dead = named(facts.run, row), dead_rank(facts.run, row)
    row = row if dead is None else pd.Series({**row, "rank": dead.rank})
    row = row if who is None else who.failure
    missing = missing_of(facts, row)
    text = str(row["text"]) if pd.notna(row["text"]) else ""
    if detail := detail_of(facts.run, row):
        text = f"{text.removeprefix(_OF_PYDANTIC).removesuffix(':')}: {detail}"
    signal = signal_of(row) or signal_behind(row) or ""
    place, came_from = crashed_in(facts, int(row["segment"])) if signal else ("", "")
    kind = "shm-full" if signal == "SIGBUS" else str(row["kind"])  # mostly a full /dev/shm
    advice = (
        *not_yet_debugged(facts, cures(kind, text, several=_of_several(facts, row))),
        *against_missing(row),
        *((_OF_STACK,) if signal in _CRASHES and not (place or _prints_stacks(facts)) else ()),
        *(for_host_memory(facts) if signal == "SIGKILL" else ()),
    )
    return [
        Finding(
            rule="rank-died",
            severity=Severity.CRITICAL,
            title=said_of(row) + _message(row, text) + f", in {place}" * bool(place),
            summary=said_among_others(facts.run, row)
            + said_if_over(facts, row)
            + _said_of_checkpoint(facts, row)
            + _of_signal(row, signal)
            + (said_of_loading(facts) if signal == "SIGKILL" else "")
            + f" It came there from {came_from}." * bool(came_from)
            + _UNSEEN * (row["kind"] == "gone")
            + said_of_dead(facts, row)
            + said_of_cancelled(facts, row)
            + _OF_SSH * of_ssh(row)
            + _FOLLOWS * _follows(row, text)
            + _BREAKS_OFF * breaks_off(row)
            + _STANDS_ALONE * stands_alone(row)
            + said_of_place(facts.run, row)
            + code_meant(text)
            + said_of_missing(row, missing)
            + said_of_named(who)
            + _who_was_dead(dead),
            ranks=ranks_of(row),
            steps=step_span(row),
            evidence=evidence_of(facts.run, row, who)
            + (() if dead is None else (row_evidence(dead.row, str(dead.row["text"])),))
            + (
                () if missing is None else (row_evidence(missing, f"{missing['text']}: not found"),)
            ),
            advice=advice or (_where_it_is_said(facts) if _is_unsaid(row) else ()),
            confidence=sure_of(facts.run, row) if dead is None else "medium",
        )
    ]


def _prints_stacks(facts: Facts) -> bool:
    """Whether Python prints stacks as it crashes, which may have no frame of Python's."""
    return bool(facts.run.told["pattern"].astype("str").str.startswith("stacks.").any())


def _of_several(facts: Facts, row: pd.Series[Any]) -> bool:
    """Whether it failed in a job of several ranks, by its settings, or others failed, too."""
    failed = launch(facts.run, int(row["segment"]))["rank"]
    return (facts.layout.world_size or 0) > 1 or bool((failed > 0).any())


def _where_it_is_said(facts: Facts) -> tuple[Advice, ...]:
    """Where the traceback is that the source lacks: in the rest of the job's output, as LSF says,
    or nowhere yet."""
    file = facts.run.config.get("stderr_file")
    return (Advice(str(file), "", "read it, too", _OF_STDERR),) if file else (_OF_TRACEBACK,)


def _ended_by_launcher(facts: Facts) -> list[Finding]:
    """That a launcher ended its processes, where nothing says why and no training went on."""
    told, rows = facts.run.told, facts.run.problems
    last = told["segment"].max()
    rows = rows[(rows["kind"] == "killed-by-launcher") & (rows["segment"] == last)]
    told = where(told, told["segment"] == last)
    if rows.empty or among(told["name"], ["exited_well"]).any():
        return []
    first = rows.iloc[0]
    later = (told["source"] == first["source"]) & (told["line"] > first["line"])
    if len(where(told, later.fillna(value=False))["step"].dropna().drop_duplicates()) > 1:
        return []
    return [
        Finding(
            rule="rank-died",
            severity=Severity.CRITICAL,
            title=f"The launcher ended its processes{when(first)}; nothing here says why",
            summary="It does so where one of them failed, or where it was told to stop itself. The "
            "source may end before the line that says which, or another one has it.",
            steps=step_span(first),
            evidence=tuple(row_evidence(r, str(r["text"])) for _, r in rows.head(2).iterrows()),
            advice=(OTHER_LOGS,),
            confidence="medium",
        )
    ]


def _store_lost(facts: Facts) -> list[Finding]:
    """That the store of all ranks no longer answered, where a source shows nothing else: at the
    end of a training that is usual."""
    rows = facts.run.problems[facts.run.problems["kind"] == "store-lost"]
    if rows.empty or len(facts.run.steps) or among(facts.run.told["name"], OVER).any():
        return []
    row = rows.iloc[int(rows["text"].astype("str").str.contains(": ").argmax())]  # names the host
    return [
        Finding(
            rule="rank-died",
            severity=Severity.WARNING,
            title="The store through which ranks meet no longer answered; nothing here says why",
            summary="Rank 0 or its launcher hosts it, and most likely ended before: what ended it "
            "is in its own log. At the end of a training these lines are usual, and the source "
            "does not show whether it was over: hence medium confidence.",
            evidence=(row_evidence(row, str(row["text"])),),
            advice=(OTHER_LOGS,),
            confidence="medium",
        )
    ]


def _said_of_checkpoint(facts: Facts, row: pd.Series[Any]) -> str:
    """That DeepSpeed had found no checkpoint to load, where nothing was trained since."""
    told = facts.run.told
    mine = told[(told["segment"] == row["segment"]) & (told["source"] == row["source"])]
    missed = mine[among(mine["name"], ["no_checkpoint"]) & (mine["line"] < row["line"])]
    if row["kind"] != "exception" or missed.empty or pd.notna(row["step"]):
        return ""
    path = quoted(missed.iloc[-1]["text"], 200)
    return f" DeepSpeed had found no checkpoint to load before it: there is no {path}."


def _is_unsaid(row: pd.Series[Any]) -> bool:
    """Whether all that a launcher tells of a process is the code that it ended with, its own."""
    ended = row["kind"] in ("exit", "root-cause") and pd.notna(row["value"])
    return bool(ended and 0 < row["value"] <= _ERRORS and _OF_LAUNCHER.match(str(row["text"])))


def _message(row: pd.Series[Any], text: str) -> str:
    """What the error itself says, but where the kind of failure says as much in fewer words."""
    if row["kind"] == "port-in-use":
        port = _PORT.search(text)
        return f" (port {port[1]})" if port else ""
    return f": {quoted_in_title(text)}" if text else ""


def _of_signal(row: pd.Series[Any], signal: str) -> str:
    """What a signal mostly comes of, and that an exit code stands for it."""
    stands_for = signal and not signal_of(row)
    code = _STANDS_FOR.format(row["value"], signal) if stands_for else ""
    return code + _MOSTLY.get(signal, "")


def _follows(row: pd.Series[Any], text: str) -> bool:
    """Whether the message tells of nothing but another failure, which is not in the source: else
    that would be the cause."""
    said = row["kind"] == "connection" or _ABORTED.search(text)
    return bool(row["kind"] in ("connection", "exception") and said)


def _who_was_dead(dead: Dead | None) -> str:
    if dead is None:
        return ""
    return (
        f" The launcher waited {format_seconds(dead.waited)} or more for each other rank to end, "
        f"but not for rank {dead.rank}: it was already dead. Medium confidence: only the time "
        "stamps of the launcher's lines say so."
    )


_OF_SSH = (
    " 255 is what ssh itself exits with when the connection breaks; a command that exits with 255 "
    "looks the same."
)
_ABORTED: Final = re.compile(r"NCCL communicator was aborted|ncclRemoteError|remote process exited")
_FOLLOWS = (
    " It only says that something failed before: a peer, the network, or a collective that timed "
    "out. What that was this source does not show."
)
_BREAKS_OFF = (
    " The source ends within its traceback: which exception it was, and whether it ended the "
    "process, is not told."
)
_STANDS_ALONE = (
    " The source ends with that line and shows no traceback: whether it ended the process, or was "
    "caught, is not told."
)
_UNSEEN = (
    " How it ended is not known: a process that skips Python's shutdown (os._exit) looks the same."
)
_MOSTLY: Final = {
    "SIGKILL": " Signal 9 without an error of its own is mostly the kernel's out-of-memory killer.",
    "SIGBUS": " Signal 7 mostly means that shared memory (/dev/shm) was full.",
}
_STANDS_FOR: Final = " Exit code {:.0f} most likely stands for {}."
