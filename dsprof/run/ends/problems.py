"""Failures and warnings, and which of them came first.

When one rank of a job dies the others die of it, loudly and at once: the last lines of a
log are victims. The cause is looked for among the rows of one failure (a segment, split
where the launcher restarts its workers) in this order:

1. what only a fault by itself prints (out of memory, an exception, a faulty GPU, a full disk, a
   port in use, a loss that is none and stops its script, the scheduler), the earliest first; a rank
   that the launcher names as root cause wins;
2. a process that went without a word: a signal or exit code that is not the launcher's
   own SIGTERM, or the launcher's root cause alone. An abort or an error code behind what is of
   3 or 4, by a rank that may be the same, is how that process ended, and no cause;
3. what a GPU stopped of a process; then a collective that timed out: the rank that had enqueued
   least is the one waited for;
4. a broken connection, an exception of C++ that does not say which, or one without a traceback that
   is all a source ends with, if nothing else is there.
   Gloo's exception of a rank that waited too long comes before those: the others lose that rank in
   the same moment, and may say so first.

A completion that InfiniBand flushed says itself that an earlier error had closed the queue: it is
no cause, even if that error is not in the source.

What CUDA returns to a process whose GPU failed is an exception of that process, which the driver
explains better where its log is in the source, before or behind.

A scheduler that gives no reason ended the job because of what one of its tasks had done before, if
any had failed: srun does so of itself. Where it gives one for the same job later, that one counts:
of a job that it preempts it first asks the step to end.

A rank's watchdog says its timeout again when it ends the process: that is one row. An exception of
the same rank behind it is no cause: what the rank had waited for had not come before. Neither is a
traceback of an unknown rank there, or behind workers that did not find each other, that breaks off
before it says what was raised, nor one of any rank behind a connection that broke. That another
rank "has inconsistent 0 params" DDP finds where that one's number never arrived.

An error that training goes on behind was caught: it is no cause, whatever it says. Two more
steps must be printed behind it, since what the other ranks were at may still appear after
one of them died. Where a process then ends with an error code and nothing else explains it,
the steps were only written late (a buffered stdout behind an unbuffered stderr). So was one
behind which the launcher reports that all processes of the node ended well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.events import Kind, Severity
from dsprof.run.ends.harmless import harmless
from dsprof.run.ends.progress import progress, reached
from dsprof.run.ends.ray import of_ray
from dsprof.run.table import Numbers, among, keys, of_kind, where

Flags = npt.NDArray[np.bool_]

COLUMNS: Final = (
    "segment", "kind", "severity", "rank", "host", "at", "step", "text", "root_cause",
    "survived", "value", "source", "line",
)  # fmt: skip

_OWN_FAULT: Final = (
    "oom", "host-oom", "exception", "overflow-limit", "port-in-use", "cancelled", "ssh-refused",
    "checkpoint-failed", "build-failed", "shm-full", "wrong-arguments", "gpu-lost", "gpu-error",
    "not-admitted", "not-scheduled",
)  # fmt: skip
_SILENT: Final = ("exit", "signal", "gone", "left", "root-cause", "command")
_STUCK: Final = ("absent", "watchdog", "stuck", "desync", "network-error", "rendezvous")
_OVERDUE: Final = ("overdue",)
_STOPPED: Final = ("gpu-fault",)
_OF_GPU: Final = ("gpu-lost", "gpu-error")
_BROKEN: Final = ("connection",)
_LOST_LINK: Final = (*_BROKEN, "network-error")

#: Begins what is said of a launch of which nobody saw how it ended.
NONE_CLOSED: Final = "no process of this launch closed its recording"

#: What gloo raises where a rank waited too long in a collective: it has no watchdog.
GAVE_UP: Final = r"gloo/transport[^\]]{0,120}\] Timed out waiting "

#: Begins what is told of a traceback whose end is not in the source.
BREAKS_OFF: Final = "its traceback breaks off at "

#: Begins what is told of an exception that is the last line of its source, and has no traceback.
LAST_LINE: Final = "a last line without a traceback: "

#: How a rank tells of another's timeout, which makes it write its own dump.
OF_ANOTHER: Final = r"Received a dump signal .{1,60} from ? ?rank (\d{1,9})"

#: What an exception says when a peer died first, or when it does not say what happened.
OF_A_PEER: Final = (
    r"Connection (?:closed|reset|refused)|Broken pipe|peer (?:exited|closed)|remote process exited"
    r"|Transport endpoint is not connected"
    r"|ncclRemoteError|ncclSystemError|DistBackendError|NCCL communicator was aborted"
    r"|has inconsistent 0 params|retr(?:ie|ei)ving ncclUniqueId"
    r"|Socket Timeout|recvBytes|sendBytes|SignalException|ChildFailedError|CalledProcessError"
    r"|^Some NCCL operations have failed or timed out"
    r"|^terminate called after|NCCL error(?: in)?: |HCCL function error: |OPS function error: Hccl"
    r"|^Exception:\s*$|RendezvousClosedError"
    r"|: Caught \w{1,60} in (?:DataLoader worker process|replica|pin memory thread)\b"
    r"|is killed by signal: Terminated"
    r"|HCCL error in: |NPU (?:function )?error.{0,80}error code is (?:107020|507046|507048)"
    r"|torch_extensions/.{1,200}\.so: cannot open shared object file"
    r"|ActorDiedError|ActorUnavailableError|RayActorError|WorkerCrashedError"
    r"|^RuntimeError: The actor with name .{1,100} failed to import on the worker"
    r"|^A worker died or was killed while executing a task|^The actor is dead because its worker"
    r"|Step \d{1,3} exited with non-zero status|ACL stream synchronize failed"
    r"|reason=\[(?:task|stream sync) timeout\]|Stream synchronize timeout"
    r"|^ExecuteUserScriptError|PapermillExecutionError|ProcessRaisedException|ProcessExitedException"
    rf"|{GAVE_UP}|^{LAST_LINE}"
    r"|^RuntimeError: (?:\[Rank 0\]: )?Ranks? \d.{0,1000} monitoredBarrier"
    r"|server socket has failed to listen on any local network(?: address\.?)?\s*$"
)
#: An InfiniBand completion with status 5, IBV_WC_WR_FLUSH_ERR.
FLUSHED: Final = r"Got completion from peer .{1,100}? with (?:error |status=)5\b"
_SIGTERM: Final = (15, -15, 143)
_SIGNALS: Final = 128  # exit codes above it stand for signals
_ABORTED: Final = (-6, 134, 250)  # exit codes of abort(): 250 is DeepSpeed's launcher's own
_ABORT: Final = 6
_TOLD: Final = 2.5  # suspicions from here on are of what another process may have caused
_LOCAL: Final = r"local rank (\d{1,4})"  # on one node, that is the rank

_SENT: Final = r"got signal \d"  # what torchrun was sent, which it says at once and at its end

#: A scheduler's words of why it ended a job.
_REASON: Final = (
    r"DUE TO|exceeded|TERM_|low on resource|^Preempted |^Node failure|preemption|its timeout"
)
_JOB: Final = r"^\*\*\* (?:STEP|JOB) (\d{1,12})"

#: Hydra's word of any error in a job: as little as nothing where something else is told.
_OF_HYDRA: Final = "Error executing job with overrides"

#: What torchrun itself names as the first failure, at its end.
_SUMMARY: Final = "launcher.root_cause"
#: So many steps printed behind an error say that it was caught.
_WENT_ON: Final = 2

#: Kinds that are read off one line, which may only quote the error.
_ONE_LINE: Final = ("oom", "host-oom", "shm-full", "port-in-use", "overflow-limit", "build-failed")
_OF_DEVICE: Final = (
    r"^(?:RuntimeError|AcceleratorError): (?:(?:CUDA|HIP) error: |cuda runtime error)"
)
_UNREACHED: Final = "ActorUnavailableError"  # whether its process died, it does not know
_OF_NCCL: Final = r"^(?:RuntimeError|(?:torch\.distributed\.)?DistBackendError): NCCL error in: "
_ONLY_NAMED: Final = r"^[\w.]{1,80}: {0,4}['\"`]"  # an error's name, and the end of a quotation
_OPENS: Final = r"""(?<![\w.)])['"`](?=\S)"""
_CLOSES: Final = r"""(?<=\S)['"`](?!\w)"""

SEVERE: Final = {*_OWN_FAULT, *_SILENT, *_STOPPED, *_STUCK, *_BROKEN} - {"checkpoint-failed"}


def problems(events: pd.DataFrame, severities: Mapping[str, str]) -> pd.DataFrame:
    """One row per failure or warning, in the order of the log; `root_cause` marks the first
    cause of each failure, `survived` what training went on behind.

    `step` is the last one that was complete before, where the source prints steps.

    Args:
        events: tidy events.
        severities: pattern → severity, as the dialects say; the kind decides otherwise.
    """
    rows = of_kind(events, Kind.PROBLEM)
    kind = rows["name"].astype("str")
    if rows.empty:
        severity = kind.astype("category")
        none = rows.assign(kind=kind, severity=severity, root_cause=False, survived=False)
        return none[list(COLUMNS)].reset_index(drop=True)
    rows = rows.assign(kind=kind)
    rows = of_ray(events, rows[~_said_again(rows)].reset_index(drop=True))
    kind = rows["kind"]
    usual = pd.Series(np.where(kind.isin(SEVERE), Severity.CRITICAL, Severity.WARNING), rows.index)
    said = rows["pattern"].astype("str").map(dict(severities)).astype("object").fillna(usual)
    found = rows.assign(severity=said.astype("str"), root_cause=False)
    found["reached"] = reached(events, found)
    step, behind = progress(events, found)
    failure = _failures(found)
    suspicion = _suspicion(found, failure)
    survived = _survived(found, failure, suspicion, behind)
    survived |= _ended_well(events, found) & ~np.isnan(suspicion)
    copying = (kind == "ssh-refused") & ~np.isnan(step)  # of files, once training runs
    noise = harmless(events, found) | copying.to_numpy(bool) | _quoted(found)
    found = found.assign(
        step=pd.Series(step, found.index).astype("Int64"),
        survived=survived,
        severity=_severity(found, survived, noise).astype("category"),
    )
    suspicion[survived | noise] = np.nan
    suspicion[_follows(found, suspicion, failure)] = np.nan
    for number in np.unique(failure):
        cause = _cause(found[failure == number], suspicion[failure == number])
        if cause is not None:
            found.loc[cause, "root_cause"] = True
    awaited = found["root_cause"].astype(bool) & found["reached"].notna()  # by the others
    found["rank"] = _relayed(found).mask(awaited).fillna(found["rank"])
    return found[list(COLUMNS)]


def has_timed_out(kinds: pd.Series[Any], texts: pd.Series[Any]) -> bool:
    """Whether a rank waited in a collective for longer than its timeout allows."""
    said = texts.astype("str").str.contains(GAVE_UP)
    return bool((said | kinds.eq("watchdog")).any())


def _relayed(rows: pd.DataFrame) -> pd.Series[Any]:
    """The rank whose timeout a row tells of, where that is another one's; NA elsewhere."""
    watchdog = rows["kind"] == "watchdog"
    if not watchdog.any():
        return pd.Series(pd.NA, rows.index, rows["rank"].dtype)
    of = rows["text"].astype("str").str.extract(OF_ANOTHER)[0].where(watchdog)
    return pd.to_numeric(of).astype("Int64").astype(rows["rank"].dtype)


def _said_again(rows: pd.DataFrame) -> Flags:
    """What was told of the same failure before: timeouts by the watchdog of the same rank,
    signals by torchrun of the same host, and exceptions by the process itself."""
    return _told_again(rows) | _summarised(rows)


def _summarised(rows: pd.DataFrame) -> Flags:
    """Exceptions in torchrun's summary that the process itself has printed, too."""
    thrown = rows["kind"] == "exception"
    again = thrown & among(rows["pattern"], [_SUMMARY])
    if not again.any():
        return again.to_numpy(dtype=bool)
    each = rows.assign(failure=_failures(rows))[["failure", "text"]]
    printed = pd.MultiIndex.from_frame(each[thrown & ~again])
    return (again & pd.MultiIndex.from_frame(each).isin(printed)).to_numpy(dtype=bool)


def _told_again(rows: pd.DataFrame) -> Flags:
    watchdog = (rows["kind"] == "watchdog") & rows["rank"].notna()
    torchrun = (rows["kind"] == "signal") & rows["text"].astype("str").str.match(_SENT)
    told = watchdog | torchrun
    if told.sum() < 2:
        return np.zeros(len(rows), bool)
    each = rows.assign(failure=_failures(rows), host=rows["host"].where(torchrun))
    again = each.duplicated(["failure", "rank", "host", "kind", "text", "count"])
    return (again & told).to_numpy(dtype=bool)


def _severity(rows: pd.DataFrame, survived: Flags, noise: Flags) -> pd.Series[Any]:
    """What was survived is no more than a warning; noise, as a mere quotation is, is a note."""
    tamed = rows["severity"].mask(survived & (rows["severity"] == Severity.CRITICAL), "warning")
    return tamed.mask(noise, str(Severity.INFO))


def _quoted(rows: pd.DataFrame) -> Flags:
    """Errors that end within a quotation that began before them: a line that talks of one."""
    text = rows["text"].fillna("").astype("str")
    closed = text.str.count(_CLOSES) > text.str.count(_OPENS)
    listed = text.str.contains(_ONLY_NAMED)
    one_line = rows["kind"].isin(_ONE_LINE) | text.str.contains(f"{_OF_DEVICE}|{_OF_NCCL}")
    return (one_line & (closed | listed)).to_numpy(dtype=bool)


def _survived(rows: pd.DataFrame, failure: Numbers, suspicion: Numbers, behind: Numbers) -> Flags:
    """Which rows training went on behind."""
    survived: Flags = ~np.isnan(suspicion) & (behind >= _WENT_ON)
    survived |= _said_anew(rows, failure, survived)
    code = rows["value"].to_numpy(dtype=float)
    silent = rows["kind"].isin(_SILENT).to_numpy(dtype=bool) & ~np.isnan(suspicion)
    for number in np.unique(failure[survived]):
        here = failure == number
        left = here & ~survived & ~np.isnan(suspicion)
        ended = left & silent & (code > 0) & (code <= _SIGNALS)
        if ended.any() and not (left & ~silent).any():
            survived &= ~(here & (suspicion == 1))
    return survived


def _said_anew(rows: pd.DataFrame, failure: Numbers, survived: Flags) -> Flags:
    """Time limits that run out again and again, as training goes on: behind the last step one may
    have run out once more."""
    overdue = rows["kind"].isin(_OVERDUE)
    if not overdue.any():
        return overdue.to_numpy(dtype=bool)
    each = [rows["source"].astype("str"), rows["rank"].fillna(-1), failure]
    before = (overdue & survived).groupby(each).transform("any")
    left = (overdue & ~survived).groupby(each).transform("sum") == 1
    return (overdue & before & left).to_numpy(dtype=bool)


def _ended_well(events: pd.DataFrame, rows: pd.DataFrame) -> Flags:
    """Rows behind which the launcher of their source reports nothing but success."""
    ends = where(events, among(events["name"], ["exited_well"]) & events["line"].notna())
    well = np.zeros(len(rows), bool)
    if ends.empty:
        return well
    told = events.loc[events["name"].isin(["world_size", "nodes"]), ["segment", "name", "value"]]
    size = told.groupby(["segment", "name"])["value"].max()
    failed = rows["kind"].isin((*_SILENT, "killed-by-launcher")) & rows["value"].ne(0)
    for (segment, source), here in ends.groupby(["segment", "source"], observed=True):
        mine = (rows["segment"] == segment) & (rows["source"] == source)
        ranks = size.get((segment, "world_size"), 1) / size.get((segment, "nodes"), 1)
        if here["value"].nunique() >= ranks and not (mine & failed).any():
            well |= (mine & (rows["line"] < here["line"].max())).to_numpy(dtype=bool)
    return well


def _failures(rows: pd.DataFrame) -> Numbers:
    """Which failure each row belongs to: a segment, split behind each restart."""
    restarts = (rows["kind"] == "restart").astype("int64")
    behind = restarts.groupby(rows["segment"]).cumsum() - restarts
    return keys(rows.assign(restarts=behind), "segment", "restarts").astype(float)


def _suspicion(rows: pd.DataFrame, failure: Numbers) -> Numbers:
    """1 to 4 as the module says (1.5: a compiler's exit code; 2.5: what a GPU stopped; 3.5: gloo
    gave up, or a time limit of the script's own ran out; 4.5: somebody could not reach a process of
    which more is told), the less the likelier the cause; NaN for no cause at all."""
    kind, text = rows["kind"], rows["text"].astype("str")
    groups = (_OWN_FAULT, _SILENT, _STOPPED, _STUCK, _OVERDUE, _BROKEN)
    each = [1.0, 2.0, 2.5, 3.0, 3.5, 4.0]
    found = np.select([kind.isin(names) for names in groups], each, np.nan)
    unsaid = (kind == "build-failed") & text.str.contains(" returned non-zero exit status ")
    found[unsaid.to_numpy(dtype=bool)] = 1.5
    victim = (kind == "exception") & text.str.contains(OF_A_PEER).fillna(False).astype(bool)
    found[victim.to_numpy()] = 4.0
    found[(victim & text.str.contains(_UNREACHED)).to_numpy(dtype=bool)] = 4.5
    found[(victim & text.str.contains(GAVE_UP)).to_numpy(dtype=bool)] = 3.5
    stops = (kind == "nan") & text.str.contains("stopping training")
    found[stops.to_numpy(dtype=bool)] = 1.0
    ended = rows["value"].isin(_SIGTERM) | (rows["value"] == 0)
    found[(kind.isin(_SILENT) & ended).to_numpy()] = np.nan
    flushed = (kind == "network-error") & text.str.contains(FLUSHED)
    found[flushed.to_numpy(dtype=bool)] = np.nan
    unsaved = (kind == "checkpoint-failed") & (rows["severity"] != Severity.CRITICAL)
    found[unsaved.to_numpy()] = np.nan
    broken = kind.isin(_OF_GPU) & (rows["severity"] == Severity.CRITICAL)
    found[(kind.isin(_OF_GPU) & ~broken).to_numpy()] = np.nan
    explained = broken.groupby(failure).transform("any") & text.str.contains(_OF_DEVICE)
    found[explained.to_numpy(dtype=bool) & (found == 1)] = 3.0
    return found


def _follows(rows: pd.DataFrame, suspicion: Numbers, failure: Numbers) -> Flags:
    """Ends that a row of the same failure in front of them brought about."""
    if len(rows) < 2:
        return np.zeros(len(rows), bool)
    kind, code, text = rows["kind"], rows["value"], rows["text"].astype("str")
    silent = kind.isin(_SILENT)
    tasks = silent & ~code.isin(_SIGTERM) & (code != 0)
    reasonless = (kind == "cancelled") & ~text.str.contains(_REASON)
    explained = reasonless & _given_later(rows, failure) if reasonless.any() else reasonless
    aborted = code.isin(_ABORTED).where(kind != "signal", code == _ABORT)
    ended = silent & (aborted | code.between(1, _SIGNALS, inclusive="left") & (kind != "signal"))
    told = pd.Series(suspicion >= _TOLD, rows.index) & (rows["severity"] != Severity.INFO)
    local = text.str.extract(_LOCAL)[0].astype("float64")
    rank = rows["rank"].astype("float64").fillna(local)
    anybody = _in_front(told & (kind.isin(("watchdog", "stuck")) | rank.isna()), failure)
    same = told.groupby([failure, rank]).transform("any").fillna(value=False).astype(bool)
    hung = (told & (kind == "absent")).groupby(failure).transform("any")  # who waited gave up
    followed = ended & (anybody | same | (rank.isna() & _in_front(told, failure)))
    waited = told & _waited(rows)
    followed |= (kind == "exception") & _in_front(waited, failure, rank)
    cut = text.str.startswith(BREAKS_OFF)
    followed |= cut & rank.isna() & _in_front(waited | (told & (kind == "rendezvous")), failure)
    dated = rows["at"].notna()
    followed |= cut & dated & _in_front(waited & dated, failure)  # of whom nobody waited for
    followed |= cut & _in_front(told & kind.isin(_LOST_LINK), failure)
    followed |= cut & _in_front(kind == "build-failed", failure, rank.fillna(-1))
    followed |= silent & aborted & hung
    followed |= text.str.startswith(_OF_HYDRA) & told.groupby(failure).transform("any")
    ends: Flags = (followed | explained | (reasonless & _in_front(tasks, failure))).to_numpy(bool)
    return ends


def _given_later(rows: pd.DataFrame, failure: Numbers) -> pd.Series[bool]:
    """Whether the scheduler gives a reason for the same job in the same failure."""
    job = rows["text"].astype("str").str.extract(_JOB)[0]
    given = rows["text"].astype("str").str.contains(_REASON) & job.notna()
    same = given.groupby([failure, job]).transform("any")
    return same.fillna(value=False).astype(bool)


def _waited(rows: pd.DataFrame) -> pd.Series[bool]:
    """Timeouts of collectives that the rank itself was in."""
    return (rows["kind"] == "watchdog") & ~rows["text"].astype("str").str.match(OF_ANOTHER)


def _in_front(rows: pd.Series[bool], *same: Numbers | pd.Series[Any]) -> pd.Series[bool]:
    """Whether one of them stands before, in the same failure (and of the same rank)."""
    seen = rows.groupby(list(same)).cumsum()
    return seen > rows


def _cause(rows: pd.DataFrame, suspicion: Numbers) -> int | None:
    """Index of the row that came first among the likeliest causes of one failure."""
    if np.isnan(suspicion).all() or not (rows["severity"] == Severity.CRITICAL).any():
        return None
    named = rows.loc[rows["kind"] == "root-cause", "rank"].dropna()
    if named.isin(rows.loc[rows["kind"].isin(_STUCK), "rank"].dropna()).any():
        suspicion = np.where(rows["kind"].isin(_SILENT), np.nan, suspicion)  # it did say a word
    likeliest = rows[suspicion == np.nanmin(suspicion)]
    of_named = likeliest[likeliest["rank"].isin(named)]
    likeliest = of_named if len(of_named) else likeliest
    waited_for = likeliest[(likeliest["kind"] == "watchdog") & likeliest["reached"].notna()]
    least = waited_for[waited_for["reached"] == waited_for["reached"].min()]
    own = likeliest[_relayed(likeliest).isna()]
    return _first(next(one for one in (least, own, likeliest) if len(one)))


def _first(rows: pd.DataFrame) -> int:
    """By time where every row has one, else by place in the log."""
    timed = rows["at"].notna().all()
    place = int(rows["at"].argmin()) if timed else 0
    return int(rows.index.to_numpy()[place])
