"""Which failure ended a launch, and how that is said.

What was survived, and how earlier launches ended, is told by `dsprof.findings.failures.earlier`.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from dsprof.events import Severity
from dsprof.findings.finding import Confidence
from dsprof.logs.sources.source import named
from dsprof.recording.launches import signal_name
from dsprof.run.ends.exits import INTERRUPTED
from dsprof.run.ends.problems import BREAKS_OFF, GAVE_UP, LAST_LINE, NONE_CLOSED
from dsprof.run.table import among, where

if TYPE_CHECKING:
    from dsprof.run import Run

OOM: Final = ("oom", "host-oom")

#: What befell who tells of a hang.
_HUNG: Final = {
    "absent": "hung",  # the one that the others waited for
    "watchdog": "waited for a collective until it timed out",
    "stuck": "was ended: NCCL's watchdog was stuck",
    "desync": "was ended: ranks stood at different collectives",
    "overdue": "came to the end of a time limit of its own",
}
HANG: Final = tuple(_HUNG)

#: What any other kind of failure does to its process.
ENDED: Final = {
    "exception": "ended with an exception",
    "shm-full": "lost a worker of its data loader (most likely a full /dev/shm)",
    "root-cause": "is what the launcher names as the first failure",
    "exit": "exited with an error",
    "signal": "was killed by a signal",
    "gone": "ended without a message",
    "left": "left the others",
    "command": "ended with an error",
    "connection": "lost its connection to a peer",
    "rendezvous": "did not find the other workers",
    "ssh-refused": "could not be reached over ssh",
    "port-in-use": "could not open the launcher's port: it is taken",
    "cancelled": "was ended by the scheduler",
    "not-scheduled": "found no node that can take it",
    "not-admitted": "was not admitted by its node",
    "overflow-limit": "ended because the loss scale cannot shrink any further",
    "checkpoint-failed": "could not write a checkpoint",
    "build-failed": "could not build an extension",
    "wrong-arguments": "rejected its command line",
    "network-error": "lost its network link",
    "nan": "stopped because its loss is not a number",
    "gpu-lost": "was lost",
    "gpu-error": "failed",
    "gpu-fault": "stopped what a process ran on it",
}

#: What the C library says of it.
_DAMAGED: Final = (
    "double free or corruption", "double-linked list", "prev_size", "free(): ", "malloc(): ",
    "munmap_chunk(): ",
)  # fmt: skip

#: What CANN says where what is queued on an NPU does not end in time.
_OF_NPU: Final = ("[task timeout]", "[stream sync timeout]", "Stream synchronize timeout")

#: The same where the message says it more closely.
_CLOSER: Final = {
    ("overflow-limit", "Skipped "): "ended because too many steps in a row overflowed",
    ("network-error", "onnect to "): "could not connect to a peer",
    ("rendezvous", "RendezvousConnectionError"): "did not reach the rendezvous store, or lost it",
    ("rendezvous", "barrier of c10d's store"): "waits for the other workers",
    ("rendezvous", "waitForInput: "): "waited in vain for an answer of the store",
    ("port-in-use", "HCCL: "): "could not open a port of HCCL: it is taken",
    ("exception", "ing ncclUniqueId from ["): "got no answer of the rank that starts NCCL",
    ("exception", "RendezvousClosedError"): "found the rendezvous closed",
    ("exception", "The model is not runnable with DeepSpeed"): "could not run what it was to tune",
    ("exception", "No optimal "): "found nothing that runs to tune",
    ("exception", BREAKS_OFF): "met an exception",
    ("exception", LAST_LINE): "met an exception",
    ("exception", "A worker died or was killed"): "ended without an exception",
    ("exception", "The actor is dead because"): "ended without an exception",
    ("exception", "The actor died unexpectedly"): "ended without an exception",
    ("exception", "Assertion `"): "failed an assertion",
    ("exception", " by GPU node-"): "was ended by its GPU's runtime",
    ("exception", "aborting with error : HSA_"): "was ended by its GPU's runtime",
    **{("exception", words): "waited for its NPU until that timed out" for words in _OF_NPU},
    **{("exception", words): "found its memory damaged" for words in _DAMAGED},
    ("exit", "Back-off restarting"): "ended again and again",
    ("cancelled", "Node failure on "): "no longer answered",
    ("not-admitted", "pyxis: "): "could not start its container",
    ("not-scheduled", "There are not enough slots"): "has no slots for all processes",
    ("wrong-arguments", "Could not find '"): "did not find a configuration",
    ("wrong-arguments", "Cannot find primary config"): "did not find a configuration",
    ("left", "in good order"): "finished before the others",
}

#: Signals of a crash or a kill, that exit codes may stand for.
_MEANT: Final = {one.value: one.name for one in map(signal.Signals, (4, 6, 7, 8, 9, 11))}

_SSH: Final = 255  #: what ssh exits with when it fails itself; else the command's code

#: What a launcher says of itself, and not of a rank: torchrun's exceptions, and a signal that it
#: was sent; DeepSpeed's, where it tunes.
_OF_LAUNCHER: Final = (
    "torch.distributed.elastic.", "got signal ", "The model is not runnable with DeepSpeed",
    "No optimal DeepSpeed configuration", "No optimal setup",
)  # fmt: skip

_STOPPED: Final = "was stopped by SIGINT (Ctrl-C)"

#: Ends of a run; other problems are warnings of other rules.
_FATAL: Final = (*OOM, *HANG, *(ENDED.keys() - {"checkpoint-failed", "network-error", "nan"}))


def ended_launch(run: Run) -> int:
    """The launch whose end is told: the last one.

    Where that trains no step, shows no failure and does not end well, and others train, it is the
    last one that failed, unless one behind that trains: nothing shows that the job recovered.
    """
    launches = sorted(run.told["segment"].unique(), reverse=True)
    if len(launches) < 2:
        return int(launches[0]) if launches else 0
    done = run.told["step"].notna()
    trained = set(run.told.loc[done, "segment"])
    over = trained | set(run.told.loc[run.told["name"] == "exited_well", "segment"])
    for one in launches if trained else ():
        if first_of(launch(run, one)) is not None:
            return int(one)
        if one in over:
            break
    return int(launches[0])


def last_launch(run: Run) -> pd.DataFrame:
    """Problems of the launch whose end is told that may have ended it."""
    return launch(run, ended_launch(run))


def launch(run: Run, segment: int) -> pd.DataFrame:
    """Problems of one launch, without mere notes and those that training went on behind."""
    rows = run.problems
    if rows.empty:
        return rows
    ended = ~rows["survived"] & ~among(rows["severity"], [Severity.INFO])
    return where(rows, (rows["segment"] == segment) & ended)


def first_failure(run: Run) -> pd.Series[Any] | None:
    """What ended the last launch (see `ended_launch`): the root cause, else the first fatal row;
    None if nothing."""
    return first_of(last_launch(run))


def first_of(problems: pd.DataFrame) -> pd.Series[Any] | None:
    """The root cause among the problems of one launch, else the first fatal one."""
    if problems.empty:
        return None
    cause = problems["root_cause"].fillna(False).astype(bool)
    fatal = problems["kind"].isin(_FATAL)
    ended = problems["kind"].isin(list(ENDED))
    if not fatal.any():
        ended &= problems["kind"] != "network-error"  # a warning, as long as it ends nobody
    named = problems[cause & (fatal | ended)]
    rows = named if len(named) else problems[fatal]
    return None if rows.empty else rows.iloc[0]


def untold_among(run: Run, row: pd.Series[Any]) -> int:
    """Among how many launches nothing tells of which one a failure is: its file holds no time and
    no step, and no name puts it beside the files of one; 0 where something tells."""
    told = run.told
    if told["segment"].nunique() < 2:
        return 0
    mine = told[told["source"] == row["source"]]
    if mine.empty or mine["at"].notna().any() or mine["step"].notna().any():
        return 0
    sources = told["source"].dropna().unique()
    family = named(str(row["source"])).family
    marked = told[told["step"].notna()]
    beside = marked["source"].isin([one for one in sources if named(str(one)).family == family])
    launches = (marked[beside] if beside.any() else told)["segment"].nunique()
    return launches if launches > mine["segment"].nunique() else 0


def why_untold(launches: int) -> str:
    """The reason for a low confidence, and the choice that was made."""
    return (
        f"nothing shows to which of {launches:,} launches it belongs, since its file has no time "
        "and no step. It is assumed to belong to the last"
    )


def said_of(row: pd.Series[Any]) -> str:
    """A failure as a sentence: `Rank 1 on w0 ran out of GPU memory after step 7`."""
    kind, text = str(row["kind"]), str(row["text"])
    if of_ssh(row):
        return f"Most likely the connection to {row['host']} was lost{when(row)}"
    if kind in OOM:
        said = f"ran out of {'host' if kind == 'host-oom' else 'GPU'} memory{_device(row)}"
    elif kind in HANG:
        said = _HUNG[kind]
    else:
        killed = signal_of(row)
        stopped = text.startswith(("KeyboardInterrupt", INTERRUPTED)) or killed == "SIGINT"
        closer = [how for (of, word), how in _CLOSER.items() if of == kind and word in text]
        ended = closer[0] if closer else ENDED[kind]
        said = _STOPPED if stopped else f"was killed by {killed}" if killed else ended
    return f"{_who(row)} {said}{when(row)}"


def gave_up(row: pd.Series[Any]) -> bool:
    """Whether it is gloo's exception of a rank that waited too long in a collective."""
    return bool(row["kind"] == "exception" and re.search(GAVE_UP, str(row["text"])))


def of_ssh(row: pd.Series[Any]) -> bool:
    """Whether ssh to a host ended with the code that is its own."""
    own = row["kind"] == "exit" and row["value"] == _SSH and pd.notna(row["host"])
    return bool(own) and str(row["text"]).startswith("ssh exited")


def of_launcher(row: pd.Series[Any]) -> bool:
    """Whether the launcher's own process failed, and no rank."""
    return str(row["text"]).startswith(_OF_LAUNCHER)


def breaks_off(row: pd.Series[Any]) -> bool:
    """Whether the source ends within the traceback of this failure."""
    return str(row["text"]).startswith(BREAKS_OFF)


def stands_alone(row: pd.Series[Any]) -> bool:
    """Whether the source ends with this exception, and shows no traceback of it."""
    return str(row["text"]).startswith(LAST_LINE)


def _device(row: pd.Series[Any]) -> str:
    """` (GPU 1)`: the device as its process counts them, where NCCL names it."""
    known = row["kind"] == "oom" and pd.notna(row["value"])
    return f" (GPU {int(row['value'])})" if known else ""


#: What failed where it was no process of the job, by kind and how the message begins.
_NO_PROCESS: Final = {
    ("command", ""): "The command",
    ("not-admitted", "Task launch for "): "A step of Slurm",
    ("not-admitted", "pyxis: "): "A step of Slurm",
    ("not-admitted", ""): "A pod",
    ("not-scheduled", "Unable to "): "A step of Slurm",
    ("not-scheduled", "There are not enough slots"): "mpirun",
    ("not-scheduled", ""): "A pod",
}
_OF_HOST: Final = "Node failure on "


def _who(row: pd.Series[Any]) -> str:
    text = str(row["text"])
    if row["kind"] == "ssh-refused" or text.startswith(_OF_HOST):
        return str(row["host"]) if pd.notna(row["host"]) else "A host"
    others = (
        who
        for (kind, begin), who in _NO_PROCESS.items()
        if kind == row["kind"] and text.startswith(begin)
    )
    if other := next(others, None):
        return other
    if str(row["kind"]).startswith("gpu-"):
        return "A GPU" + (f" on {row['host']}" if pd.notna(row["host"]) else "")
    whole = row["kind"] == "gone" or row["value"] in (signal.SIGINT, signal.SIGTERM)
    if whole and text.startswith(NONE_CLOSED):
        return "The job"
    if of_launcher(row):
        return "The launcher" + (f" on {row['host']}" if pd.notna(row["host"]) else "")
    task = f"Task {row['task']}" if "task" in row else "A process"
    rank = f"Rank {int(row['rank'])}" if pd.notna(row["rank"]) else task
    return rank + (f" on {row['host']}" if pd.notna(row["host"]) else "")


def when(row: pd.Series[Any]) -> str:
    """` after step 7`: the last step that was complete before; "" if the source prints none."""
    return f" after step {int(row['step']):,}" if pd.notna(row["step"]) else ""


def step_span(row: pd.Series[Any]) -> tuple[int, int] | None:
    """The same step as a finding's first and last one."""
    return None if pd.isna(row["step"]) else (int(row["step"]), int(row["step"]))


def signal_behind(row: pd.Series[Any]) -> str | None:
    """The signal that an exit code most likely stands for: 128 + 9 is a shell's, 256 - 9 that of
    DeepSpeed's launcher, which exits with the -9 of its child."""
    if row["kind"] not in ("exit", "root-cause", "command", "exception") or pd.isna(row["value"]):
        return None
    code = int(row["value"])
    number = code - 128 if code < 192 else 256 - code
    return _MEANT.get(number) if code > 128 else None


def signal_of(row: pd.Series[Any]) -> str | None:
    """The signal that ended a process, by its name; None where its exit code tells of none."""
    if row["kind"] not in ("exit", "signal", "root-cause", "command") or pd.isna(row["value"]):
        return None
    code = int(row["value"])
    return signal_name(code if row["kind"] == "signal" else -code)


def ranks_of(row: pd.Series[Any]) -> tuple[int, ...]:
    """The rank that failed, as a finding's ranks; none if it is unknown, or was the launcher."""
    return () if pd.isna(row["rank"]) or of_launcher(row) else (int(row["rank"]),)


def said_among_others(run: Run, row: pd.Series[Any]) -> str:
    """Whether the last launch shows other failures, and how it is known that this was the first."""
    launches = untold_among(run, row)
    if launches:
        return f"Low confidence: {why_untold(launches)}."
    return _said_first(run, row) + _said_later(run)


def _said_first(run: Run, row: pd.Series[Any]) -> str:
    if not _others(run):
        return f"It is the only failure that was read {_where(run)}."
    if row["kind"] == "root-cause":
        return (
            f"The launcher names it as the first failure {_where(run)}; other messages tell of the "
            "same, or of what followed."
        )
    if row["root_cause"] and _is_behind(run, row):
        return f"It is the likeliest cause of the failure messages {_where(run)}, some before it."
    if row["root_cause"]:
        return f"It was the first failure {_where(run)}; other messages come after it."
    return (
        f"It is the first of the failure messages {_where(run)}; which came first is not "
        "certain, hence medium confidence."
    )


def sure_of(run: Run, row: pd.Series[Any]) -> Confidence:
    """How sure it is that this failure ended the last launch."""
    if untold_among(run, row):
        return "low"
    if row["kind"] in ("gone", "left", "gpu-fault") or of_ssh(row):
        return "medium"
    if breaks_off(row) or stands_alone(row):
        return "medium"
    return "high" if row["root_cause"] or not _others(run) else "medium"


def _others(run: Run) -> int:
    """Failure messages of the last launch beside the first one."""
    ended = (last_launch(run)["kind"] == "killed-by-launcher").sum()
    rows = run.problems[run.problems["segment"] == ended_launch(run)]
    listed = (rows["kind"] == "exit") & (rows["severity"] == Severity.INFO)  # its own summary
    return int(len(_failures(run)) + ended + listed.sum()) - 1


def _failures(run: Run) -> pd.DataFrame:
    """Failure messages of the last launch."""
    rows = last_launch(run)
    return rows[rows["kind"].isin([*OOM, *HANG, *ENDED])]


def _is_behind(run: Run, row: pd.Series[Any]) -> bool:
    """Whether its own source told of another failure before: of what its cause led to elsewhere,
    or of the same with less."""
    rows = _failures(run)
    return bool(((rows["source"] == row["source"]) & (rows["line"] < row["line"])).any())


def _where(run: Run) -> str:
    launches = run.told["segment"].nunique()
    if launches == 1:
        return "in the source"
    later = _later(run)
    if later:
        return f"of launch {launches - later:,} of {launches:,}"
    return f"of the last of {launches:,} launches"


def _later(run: Run) -> int:
    """How many launches there are behind the one whose end is told."""
    segments = run.told["segment"]
    return int(segments[segments > ended_launch(run)].nunique())


def _said_later(run: Run) -> str:
    """What became of them."""
    later = _later(run)
    if not later:
        return ""
    which = "The launch after it prints" if later == 1 else f"The {later:,} launches after it print"
    return f" {which} no step and no failure."
