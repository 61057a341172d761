"""A recorded rank that did not come to the collective in which the others waited."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.analysis.standing import Standing
from dsprof.events import Class
from dsprof.findings.facts import Facts
from dsprof.findings.failures.last_seen import last_seen
from dsprof.findings.failures.stood import Stood, proofs, said_of_all, stood
from dsprof.findings.finding import Advice, Evidence
from dsprof.run.ends.missed import LONG
from dsprof.run.ends.problems import has_timed_out
from dsprof.units import format_ranks, format_seconds

_VERB: Final = {True: "has been", False: "was"}
_WAITED: Final = "The others waited in a collective;"
_SILENT: Final = f"{_WAITED} its recording ends before that one, without a message."
_STACK: Final = "Its own stack (py-spy dump --pid) says where it is, if it still runs."
_MANY_SILENT: Final = f"{_WAITED} their recordings end before that one, without a message."
_MANY_STACKS: Final = "Their stacks (py-spy dump --pid) say where they are, if they still run."
_STOPPED: Final = " It is stopped, by a signal (SIGSTOP) or in a debugger."
_MAY_WORK: Final = (
    " Medium confidence: it may only do what takes that long, as evaluating another module."
)
_OF_STOPPED: Final = "goes on, if it was not a debugger that stopped it"
OF_STACKS: Final = Advice(
    "py-spy dump --pid", "", "of each rank, while it hangs", "shows where each of them stands"
)
OF_LOADER: Final = Advice(
    "DataLoader(timeout=...)",
    "",
    "a minute or more, with workers",
    "a batch that does not come is then an error that says so",
)
OF_LOCK: Final = Advice(
    "lock in the folders of torch_extensions",
    "",
    "removed, if no process compiles there",
    "a build that was ended leaves it, and each rank that loads the extension waits for it",
)
_OF_STORAGE: Final = Advice(
    "file system of the checkpoint",
    "",
    "check from that host that it answers",
    "a process that waits for a dead one cannot be looked into, nor killed",
)


def who_and_where(facts: Facts, absent: pd.DataFrame) -> str:
    """Behind a title: `: rank 1 was in data for 17.9 s`."""
    ranks = [int(rank) for rank in absent["rank"].dropna()]
    if not ranks:
        return ""
    one = _stood_alone(facts, absent)
    if one is None:
        return f": {format_ranks(ranks)} did not arrive"
    if one.stopped:
        return f": rank {one.rank} is stopped (SIGSTOP, or a debugger)"
    code = one.line
    if one.over:
        return f": rank {one.rank} {_VERB[one.is_there]} between phases{one.lasted}{code}"
    if one.seconds is None:
        return f": rank {one.rank} {_did_not_come(one)}{code}"
    return f": rank {one.rank} {_VERB[one.is_there]} {one.within}{one.lasted}{code}"


def said_of_absent(facts: Facts, absent: pd.DataFrame) -> str:
    """Where it stood and the others waited, as far as their recordings tell."""
    one = _stood_alone(facts, absent)
    every = stood(facts, int(absent["segment"].iloc[0]))
    missed = [other for other in every if other.source in set(absent["source"])]
    if one is None and len(absent) > 1:
        places = f" {_sentence(said_of_all(missed))}" if missed else ""
        return f"{_MANY_SILENT}{places} {_MANY_STACKS}"
    if one is None:
        return f"{_SILENT}{last_seen(facts, absent)} {_STACK}"
    others = said_of_all(other for other in every if other.call)
    may_work = "" if is_sure(facts, absent) else _MAY_WORK
    waited = _sentence(others) if others else f"{_WAITED[:-1]}."
    return f"{_where(one)}{_said_of_code(one)}{may_work} {waited}"


def _said_of_code(one: Stood) -> str:
    """Behind a blank: which code its stack showed there."""
    if one.standing is None:
        return ""
    lasted = format_seconds(one.standing.seconds)
    return f" Its stack, whenever it was seen in {lasted}, had {one.standing.told}."


def stacks_of(facts: Facts, absent: pd.DataFrame) -> tuple[Evidence, ...]:
    """Of those that did not arrive, and of those that waited for them."""
    every = stood(facts, int(absent["segment"].iloc[0])) if len(absent) else []
    return proofs(sorted(every, key=lambda one: one.source not in set(absent["source"])))


def waited_themselves(facts: Facts, absent: pd.DataFrame) -> str:
    """Where the ranks stood that hung, if they waited in collectives: those that ended did not come
    to these. "" if not.
    """
    if absent.empty:
        return ""
    every = stood(facts, int(absent["segment"].iloc[0]))
    waited = [one for one in every if one.call and one.source in set(absent["source"])]
    return said_of_all(waited)


def is_sure(facts: Facts, absent: pd.DataFrame) -> bool:
    """Whether a rank that stood where nothing is recorded stood there for longer than what scripts
    do in such places, or than the others may wait for it.
    """
    one = _stood_alone(facts, absent)
    if one is None or not one.over or one.stopped or (one.silent or 0.0) >= LONG:
        return True
    problems = facts.run.problems
    mine = problems[problems["segment"] == absent["segment"].iloc[0]]
    return has_timed_out(mine["kind"], mine["text"])


def _sentence(said: str) -> str:
    return f"{said[0].upper()}{said[1:]}."


def advice_on(facts: Facts, absent: pd.DataFrame) -> tuple[Advice, ...]:
    """How to see where it stands, and what helps where its phase says what it waits for."""
    one = _stood_alone(facts, absent)
    if one is None:
        return (OF_STACKS,)
    look: tuple[Advice, ...] = (look_at_rank(one),)
    if one.standing and not one.stopped:
        look = (_of_code(one, one.standing), *look * one.is_there)
    if one.over or one.stopped:
        return look
    if one.class_ == Class.DATA:
        return (*look, OF_LOADER)
    return (*look, _OF_STORAGE) if one.class_ == Class.CHECKPOINT else look


def _of_code(one: Stood, standing: Standing) -> Advice:
    why = f"rank {one.rank} was in it whenever its stack was seen"
    own = next((one for one in standing.frames if one.is_own), None)
    what = standing.told if own is None or own.is_script else own.told
    return Advice(what, "", "let it end, or fail, in time", why)


def is_outside(facts: Facts, absent: pd.DataFrame) -> bool:
    """Whether it is known to be where no collective is: loading data, or saving; or stopped."""
    one = _stood_alone(facts, absent)
    if one is None or one.stopped:
        return one is not None
    return not one.over and one.class_ in (Class.DATA, Class.CHECKPOINT)


def _stood_alone(facts: Facts, absent: pd.DataFrame) -> Stood | None:
    """Where the only one that did not arrive stood; None where that is not known, or of several."""
    if len(absent) != 1:
        return None
    row = absent.iloc[0]
    told = stood(facts, int(row["segment"]))
    mine = (one for one in told if one.source == row["source"] and (one.phase or one.standing))
    return next((one for one in mine if one.rank is not None), None)


def _where(one: Stood) -> str:
    since = "" if one.silent is None else f" {format_seconds(one.silent)}"
    if one.over:
        place = f"between phases, after {one.phase},{one.lasted}"
        return (
            f"Rank {one.rank} {_VERB[one.is_there]} {place}: in the script's own code, or "
            "in a library's, that is no phase of a recording." + _STOPPED * one.stopped
        ).replace(",:", ":")
    if one.seconds is None:
        entered = f", which it entered{since} before {one.sign}" if since and one.phase else ""
        return f"Rank {one.rank} {_did_not_come(one)}{entered}."
    if one.is_there:
        still = _STOPPED * one.stopped
        return f"Rank {one.rank} has been {one.within}{one.lasted}, and still is.{still}"
    return f"Rank {one.rank} was {one.within}{one.lasted}, until it was ended."


def _did_not_come(one: Stood) -> str:
    return f"did not come out of {one.phase}" if one.phase else "did not come to its first phase"


def look_at_rank(one: Stood) -> Advice:
    """How to see where a rank stands, or what lets it go on."""
    who = f"where rank {one.rank} stands"
    if one.stopped and one.pid:
        return Advice(f"kill -CONT {one.pid}", "", f"on {one.host}, now", _OF_STOPPED)
    if one.is_there and one.pid:
        return Advice(f"py-spy dump --pid {one.pid}", "", f"on {one.host}, now", f"shows {who}")
    when = f"of rank {one.rank}, while it hangs"
    return Advice("py-spy dump --pid", "", when, f"shows {who}")
