"""Recorded processes that did not end as the others of their launch did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from dsprof.events import PROBLEMS
from dsprof.findings import RULES, Finding
from dsprof.findings.facts import Facts
from dsprof.findings.rules import ENDED
from dsprof.recording.launches import NOT_FOUND, Gone
from dsprof.run import Run, from_events

START = pd.Timestamp("2026-01-01 12:00:00")
LATER = int((START + pd.Timedelta(seconds=40)).value)


def process(rank: int, **more: Any) -> dict[str, Any]:
    """A process whose last row was written 10 s after the start."""
    return {
        "rank": rank, "host": "w0", "pid": 100 + rank, "segment": 0, "source": f"rank-{rank}",
        "ended": False, "ended_at": None, "over_at": None, "in_flight": None,
        "idle": 1000.0,
    } | more  # fmt: skip


def ended(rank: int, seconds: float = 10.5, **more: Any) -> dict[str, Any]:
    at = int((START + pd.Timedelta(seconds=seconds)).value)
    return process(rank, ended=True, ended_at=at, **more)


def run_of(*processes: dict[str, Any], seconds: float = 1.0, rows: Sequence[Any] = ()) -> Run:
    """Each process has recorded ten steps, of a second unless it is said, and these `rows`."""
    steps = [
        {"kind": "metric", "name": "step_seconds", "seconds": seconds, "step": step, "steps": 1,
         "rank": one["rank"], "segment": one["segment"], "engine": 0, "line": step,
         "record": step, "source": one["source"], "at": START + pd.Timedelta(seconds=step)}
        for one in processes
        for step in range(1, 11)
    ]  # fmt: skip
    return from_events(pd.DataFrame([*steps, *rows]), meta={"recordings": list(processes)})


def problems(run: Run) -> list[tuple[str, int, int]]:
    rows = run.problems
    return [(str(r.kind), int(r["rank"]), int(r.step)) for _, r in rows.iterrows()]


def ended_by(run: Run) -> Finding:
    """What ended it, which comes before all that only slowed it: asked of no other rule."""
    facts = Facts(run)
    (found,) = [one for rule in ENDED for one in RULES[rule](facts) if isinstance(one, Finding)]
    return found


def test_a_process_that_others_outlived_for_a_moment_has_died() -> None:
    run = run_of(ended(0), process(1))
    assert problems(run) == [("gone", 1, 10)]
    first = ended_by(run)
    assert (first.rule, first.ranks, first.steps) == ("rank-died", (1,), (10, 10))
    assert (first.title.partition(" after")[0], first.confidence) == (
        "Rank 1 on w0 ended without a message", "medium",
    )  # fmt: skip


def test_a_process_of_another_host_that_has_just_written_may_end_a_little_later() -> None:
    """Nobody sees from here whether it is there. It is surely gone where it was on this host."""
    assert problems(run_of(ended(0), process(1, idle=2.0))) == []
    for known in ({"gone": True}, {"over_at": LATER}):
        assert problems(run_of(ended(0), process(1, idle=2.0, **known))) != []


def test_a_launch_of_other_ranks_beside_it_ends_none() -> None:
    """`dsprof attach --pid` has joined those of another host a moment later."""
    other = process(1, idle=1.0, segment=1, host="w1")
    assert problems(run_of(process(0, idle=1.0), other)) == []
    again = run_of(process(0, idle=1.0), process(1, idle=1.0), other)
    assert again.problems["kind"].tolist() == ["gone"]


def test_a_process_that_others_waited_for_hung() -> None:
    run = run_of(ended(0, seconds=40.0), process(1))
    assert problems(run) == [("absent", 1, 10)]
    first = ended_by(run)
    assert (first.rule, first.ranks) == ("hang", (1,))
    assert "rank 1 did not arrive" in first.title


def test_where_all_were_killed_who_was_in_no_collective_is_to_blame() -> None:
    waiting = {"name": "all_reduce", "seq": 57, "at": LATER}
    run = run_of(process(0, in_flight=waiting), process(1), process(2, in_flight=waiting))
    assert problems(run) == [("absent", 1, 10)]


def test_of_ranks_that_were_all_killed_by_an_unseen_hand_none_hung_for_all_that_is_known() -> None:
    """As by a scheduler, at the end of the job's time: one rank is always in a collective. How
    long it was in there nobody saw.
    """
    moment = int((START + pd.Timedelta(seconds=10.3)).value)
    waiting = {"name": "all_reduce", "seq": 57, "at": moment}
    run = run_of(process(0, in_flight=waiting), process(1))
    assert run.problems.empty
    again: dict[str, Any] = {"segment": 1, "source": "again"}
    run = run_of(process(0, in_flight=waiting), process(1), ended(0, **again))
    assert run.problems[["kind", "text"]].to_numpy().tolist() == [
        ["gone", "no process of this launch closed its recording, and the launch is over"]
    ]
    assert run.problems["rank"].isna().all()


def test_a_rank_that_is_there_and_does_not_come_for_long_hangs_while_the_others_wait() -> None:
    moment = int((START + pd.Timedelta(seconds=10.3)).value)
    waiting = {"name": "all_reduce", "seq": 57, "at": moment}
    run = run_of(process(0, in_flight=waiting, alive_at=LATER), process(1))
    assert problems(run) == [("absent", 1, 10)]
    assert "rank 1 did not arrive" in ended_by(run).title


def test_a_rank_in_the_middle_of_a_long_step_did_not_hang_when_all_were_ended() -> None:
    """Steps of 1 s here, of 20 s there: the same silence of 30 s says different things."""
    waiting = {"name": "all_reduce", "seq": 57, "at": LATER}
    both = [killed(0, 40.0, 15, in_flight=waiting), killed(1, 40.0, 15)]
    assert problems(run_of(*both)) == [("absent", 1, 10)]
    run = run_of(*both, seconds=20.0)
    assert run.problems[["kind", "value"]].to_numpy().tolist() == [["signal", 15.0]]
    assert run.problems["rank"].isna().all()


def test_what_a_hung_rank_says_of_its_nodes_gpus_is_no_sign_that_it_went_on() -> None:
    """A thread of it says that: it samples them for all ranks of the node."""
    rows = [
        {"kind": "gpu", "name": "power", "value": 300.0, "segment": 0, "engine": 0, "line": line,
         "record": line, "source": "rank-1", "at": START + pd.Timedelta(seconds=line)}
        for line in range(11, 40)
    ]  # fmt: skip
    run = run_of(ended(0, seconds=40.0), process(1), rows=rows)
    assert problems(run) == [("absent", 1, 10)]


@pytest.mark.parametrize(("ahead", "kind"), [(0.0, "absent"), (-8.0, "gone")])
def test_who_died_is_judged_by_one_clock(ahead: float, kind: str) -> None:
    """The clock of w1 is 8 s behind, so that it seems to have written nothing for 10 s."""
    run = run_of(ended(0, seconds=20.0), process(1, host="w1"))
    clocks = {"w0": {"ahead": 0.0}, "w1": {"ahead": ahead}}
    run = from_events(run.recorded, meta=run.meta | {"clocks": clocks})
    assert problems(run) == [(kind, 1, 10)]
    assert run.problems["at"].iloc[0] == START + pd.Timedelta(seconds=10)  # by its own clock


def test_who_was_killed_first_is_judged_by_one_clock() -> None:
    """The clock of w1 is 3 s ahead: its process was killed before that of w0."""
    both = [killed(0, 11.0, 9), killed(1, 13.0, 9, host="w1")]
    run = run_of(*both)
    assert run.problems["rank"].tolist() == [0]
    clocks = {"w0": {"ahead": 0.0}, "w1": {"ahead": 3.0}}
    run = from_events(run.recorded, meta=run.meta | {"clocks": clocks})
    assert run.problems["rank"].tolist() == [1]


def test_whom_the_others_hardly_waited_for_when_the_launch_was_over_had_died() -> None:
    """A launcher ends the others at once when one is killed: they close nothing either."""
    waiting = {"name": "all_reduce", "seq": 57, "at": LATER}
    for seconds, kind in ((11.0, "gone"), (40.0, "absent")):
        over = {"over_at": int((START + pd.Timedelta(seconds=seconds)).value), "idle": 1.0}
        assert problems(run_of(process(0, in_flight=waiting, **over), process(1, **over))) == [
            (kind, 1, 10)
        ]


def test_where_all_were_ended_and_none_waited_no_rank_is_blamed() -> None:
    """As DDP's reducer waits in C++, where no call is seen under way."""
    over = {"over_at": int((START + pd.Timedelta(seconds=11)).value), "idle": 1.0}
    run = run_of(process(0, **over), process(1, **over))
    assert run.problems["kind"].tolist() == ["gone"]
    assert run.problems["rank"].isna().all()
    first = ended_by(run)
    assert (first.rule, first.ranks) == ("rank-died", ())
    assert first.title.startswith("The job ended without a message after step ")
    assert "no process of this launch closed its recording" in first.title
    for last in range(2):
        both = [process(rank, **over | {"idle": 1.0 + (rank != last)}) for rank in range(2)]
        assert run_of(*both).problems["source"].tolist() == [f"rank-{last}"]


def killed(
    rank: int, seconds: float, signal: int, code: int | None = None, **more: Any
) -> dict[str, Any]:
    at = int((START + pd.Timedelta(seconds=seconds)).value)
    return process(rank, killed=Gone(at, signal, code), over_at=LATER, idle=1.0) | more


def test_who_was_seen_to_be_killed_first_has_died_and_not_whom_the_launcher_ended() -> None:
    run = run_of(killed(0, 10.1, 15), killed(1, 10.05, 9), killed(2, 40.0, 9))
    assert problems(run) == [("signal", 1, 10)]
    first = ended_by(run)
    assert (first.rule, first.ranks) == ("rank-died", (1,))
    assert first.title.startswith("Rank 1 on w0 was killed by SIGKILL after step 10")


def test_nobody_is_named_as_the_first_where_another_was_gone_when_it_was_looked_for() -> None:
    run = run_of(killed(0, 10.1, 9), killed(1, 10.05, NOT_FOUND))
    assert run.problems["kind"].tolist() == ["gone"]
    assert run.problems["rank"].isna().all()
    assert problems(run_of(killed(0, 10.1, 9), killed(1, 15.0, NOT_FOUND))) == [("signal", 0, 10)]


def test_who_was_gone_before_the_launcher_ended_the_others_has_died_though_nobody_saw_how() -> None:
    """The launcher asked for it first: how it went is not known, that it was first is."""
    run = run_of(killed(0, 10.14, 15), killed(1, 10.1, 0), killed(2, 10.15, 15))
    assert problems(run) == [("gone", 1, 10)]
    for others in ((killed(0, 10.14, 0),), (killed(0, 10.05, 15),), (process(0, idle=1.0),)):
        assert run_of(killed(1, 10.1, 0), *others).problems["rank"].isna().all()


def test_an_exit_code_that_was_seen_is_told() -> None:
    run = run_of(killed(0, 10.14, 15), killed(1, 10.1, 0, 7), killed(2, 10.15, 15))
    assert problems(run) == [("exit", 1, 10)]
    assert run.problems["value"].tolist() == [7]
    first = ended_by(run)
    assert (first.ranks, first.confidence) == ((1,), "high")
    assert first.title.startswith("Rank 1 on w0 exited with an error after step 10")
    assert first.title.endswith("with exit code 7")


def test_of_processes_that_failed_at_once_none_is_named_as_the_first() -> None:
    """Nor is a signal that a launcher may have sent in the end what they failed with."""
    run = run_of(killed(0, 10.1, 0, 7), killed(1, 10.15, 0, 7))
    assert run.problems[["kind", "value"]].to_numpy().tolist() == [["exit", 7.0]]
    assert run.problems["rank"].isna().all()
    assert problems(run_of(killed(0, 10.1, 0, 7), killed(1, 11.5, 9))) == [("exit", 0, 10)]
    assert problems(run_of(killed(0, 10.1, 0, 7))) == [("exit", 0, 10)]
    run = run_of(killed(0, 10.1, 15), killed(1, 10.2, 15))
    assert ended_by(run).title.startswith("The job was killed by SIGTERM after step 10")
    run = run_of(killed(0, 10.1, 0, idle=2.0), killed(1, 11.5, 9))
    assert run.problems["kind"].tolist() == ["gone"]


def test_processes_that_ended_with_status_0_are_no_failures() -> None:
    """As scripts do that skip a slow end: `os._exit(0)`."""
    assert problems(run_of(killed(0, 10.1, 0, 0), killed(1, 10.2, 0, 0))) == []
    assert problems(run_of(ended(0), killed(1, 10.2, 0, 0))) == []


def test_processes_that_all_skip_their_end_and_whose_command_succeeds_did_not_fail() -> None:
    """`os._exit(0)` on hosts where nobody looks, or so soon that nobody saw a process end."""
    well = {"over_with": 0, "over_at": LATER}
    unseen = Gone(LATER, NOT_FOUND)
    waits = {"name": "all_reduce", "seq": 57, "at": LATER}
    assert problems(run_of(process(0, **well), process(1, **well))) == []
    assert problems(run_of(process(0, killed=unseen, **well), process(1, **well))) == []
    for died in (
        run_of(process(0, **well | {"over_with": 1}), process(1, **well | {"over_with": 1})),
        run_of(process(0, over_at=LATER), process(1, over_at=LATER)),
        run_of(process(0, in_flight=waits, **well), process(1, **well)),
        run_of(ended(0, **well), process(1, **well)),
        run_of(killed(0, 10.1, 15, **well), process(1, **well)),
        run_of(killed(0, 10.1, 0, 1, **well), killed(1, 10.2, 0, 3, **well)),
    ):
        assert ended_by(died).rule in ("rank-died", "hang")


def test_a_command_that_its_processes_outlived_says_nothing_of_their_end() -> None:
    """As one that only starts the job and returns: `sbatch`, or `&` in a script."""
    began = int((START + pd.Timedelta(seconds=1)).value)
    moment = int((START + pd.Timedelta(seconds=10.3)).value)
    waiting = {"name": "all_reduce", "seq": 57, "at": moment}
    for code in (0, 1):
        over: dict[str, Any] = {"over_at": began, "over_with": code}
        assert run_of(process(0, **over), process(1, **over)).problems.empty
        run = run_of(process(0, **over), process(1, in_flight=waiting, **over))
        assert run.problems.empty
        assert problems(run_of(ended(0, **over), process(1, **over))) == [("gone", 1, 10)]


def test_a_command_that_ends_with_an_error_though_no_rank_was_seen_to_fail_is_told() -> None:
    """As of ranks that call `sys.exit(3)` and are gone before anybody looks for them."""
    over: dict[str, Any] = {"over_with": 1, "over_at": LATER, "launch": "ours"}
    unseen = {"killed": Gone(LATER, NOT_FOUND)}
    for run in (
        run_of(ended(0, **over), ended(1, **over)),
        run_of(ended(0, **over | unseen), ended(1, **over | unseen)),
        run_of(ended(0, **over), killed(1, 10.2, 0, 0, **over)),
    ):
        assert run.problems[["kind", "value", "step"]].to_numpy().tolist() == [["command", 1, 10]]
        assert run.problems["rank"].isna().all()
        first = ended_by(run)
        assert (first.rule, first.ranks, first.severity) == ("rank-died", (), "critical")
        assert first.title == (
            "The command ended with an error after step 10: it exited with code 1, and no recorded "
            "process was seen to fail: which rank failed, if one did, is unknown"
        )
    killed_too = run_of(ended(0, **over | {"over_with": -9}))
    assert ended_by(killed_too).title.startswith("The command was killed by SIGKILL after step")
    assert "signal 9 ended it" in killed_too.problems["text"].iloc[0]


def test_a_command_that_was_interrupted_with_its_ranks_was_stopped_by_hand() -> None:
    over: dict[str, Any] = {"over_with": 1, "over_at": LATER}
    run = run_of(left(0, 10.1, 0, 2) | over, left(1, 10.1, 0, 2) | over)
    assert ended_by(run).title == (
        "The command was stopped by SIGINT (Ctrl-C) after step 10: an interrupt ended its recorded "
        "processes, and it exited with code 1"
    )


def test_a_command_that_fails_when_all_its_ranks_had_ended_with_code_0_is_no_verdict() -> None:
    """As where a script goes on behind training."""
    over: dict[str, Any] = {"over_with": 23, "over_at": LATER, "launch": "ours"}
    run = run_of(killed(0, 10.1, 0, 0, **over), killed(1, 10.2, 0, 0, **over))
    assert run.problems["kind"].tolist() == ["command-alone"]
    assert run.problems["severity"].tolist() == ["warning"]
    assert "every recorded process had ended with code 0" in run.problems["text"].iloc[0]
    assert run.findings[0].rule != "rank-died"


def test_the_code_of_a_command_says_nothing_that_its_ranks_say_or_of_those_it_started_anew() -> (
    None
):
    over: dict[str, Any] = {"over_with": 1, "over_at": LATER, "launch": "ours"}
    well = over | {"over_with": 0}
    again: dict[str, Any] = {"segment": 1, "source": "again"}
    assert problems(run_of(killed(0, 10.1, 0, 3, **over), ended(1, **over))) == [("exit", 0, 10)]
    assert problems(lost(run_of(ended(0, **over)), 0, 10.2, "ValueError: no")) == [
        ("exception", 0, 10)
    ]
    assert run_of(ended(0, **well), ended(1, **well)).problems.empty
    assert run_of(ended(0), ended(1)).problems.empty
    rows = run_of(ended(0, **over), ended(0, **over | again)).problems
    assert rows[["kind", "segment"]].to_numpy().tolist() == [["command", 1]]
    other = over | again | {"launch": "another", "over_with": 0}
    rows = run_of(ended(0, **over), ended(0, **other)).problems
    assert rows[["kind", "segment"]].to_numpy().tolist() == [["command", 0]]


def left(rank: int, seconds: float, code: int, signal: int = 0) -> dict[str, Any]:
    """It closed its recording, and was seen to be gone a moment later."""
    gone = int((START + pd.Timedelta(seconds=seconds + 0.05)).value)
    seen = Gone(gone, signal, None if signal else code)
    return ended(rank, seconds, killed=seen, over_at=LATER)


def lost(run: Run, rank: int, seconds: float, text: str = "") -> Run:
    """The run whose rank ended with an exception: the words of one that lost its peer."""
    said = text or "RuntimeError: [gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:8117"
    at = START + pd.Timedelta(seconds=seconds)
    row = {"kind": "problem", "name": "exception", "rank": rank, "segment": 0, "engine": 0,
           "line": 11, "record": 11, "source": f"rank-{rank}", "at": at, "text": said}  # fmt: skip
    return from_events(pd.concat([run.recorded, pd.DataFrame([row])]), meta=run.meta)


def test_who_closed_its_recording_and_exited_with_an_error_is_the_one_that_failed() -> None:
    """As `sys.exit(3)` does; the others lose their connection, or the launcher ends them."""
    for run in (
        run_of(left(1, 10.1, 3), killed(0, 10.3, 15)),
        run_of(left(1, 10.1, 3), left(0, 10.3, 1)),
        lost(run_of(left(1, 10.1, 3), ended(0, 10.2)), 0, 10.2),
    ):
        first = ended_by(run)
        assert (first.rule, first.ranks, first.steps) == ("rank-died", (1,), (10, 10))
        assert first.title.startswith("Rank 1 on w0 exited with an error after step 10")
        assert first.title.endswith("with exit code 3")
    assert problems(run_of(left(1, 10.3, 3), killed(0, 10.1, 15))) == [("signal", 0, 10)]
    assert problems(run_of(left(0, 10.1, 0), left(1, 10.2, 143))) == []
    for signal in (2, 9, 15):  # Ctrl-C is no fault; a launcher may end who lingers
        assert problems(run_of(left(0, 10.1, 0), left(1, 10.2, 0, signal))) == []
    together = run_of(left(0, 10.1, 3), left(1, 10.15, 3)).problems
    assert together["kind"].tolist() == ["exit"]
    assert together["rank"].isna().all()


def test_who_ended_in_good_order_while_others_went_on_is_why_they_lost_their_connection() -> None:
    run = lost(run_of(left(1, 10.1, 0), ended(0, 10.2)), 0, 10.2)
    first = ended_by(run)
    assert (first.ranks, first.confidence) == ((1,), "medium")
    assert "with exit code 0, and others lost their connection to it" in first.title
    assert " finished before the others after step " in first.title
    assert first.advice[0].setting == "number of steps of each rank"
    assert "without closing" not in PROBLEMS[str(run.problems["kind"].iloc[0])]
    assert "not known" not in first.summary
    assert sorted(problems(run)) == [("exception", 0, 10), ("left", 1, 10)]
    run = lost(run_of(killed(1, 10.21, 0, 0), ended(0, 10.2)), 0, 10.2)  # by `os._exit(0)`
    assert sorted(problems(run)) == [("exception", 0, 10), ("left", 1, 10)]
    assert ended_by(run).title.startswith(
        "Rank 1 on w0 left the others after step 10: process 101 exited with code 0 without closing"
    )
    assert ended_by(run).advice[0].setting == "os._exit in the script"
    run = lost(run_of(left(1, 10.1, 0, 2), ended(0, 10.2)), 0, 10.2)
    assert ended_by(run).title.startswith(
        "Rank 1 on w0 was stopped by SIGINT (Ctrl-C) after step 10"
    )
    run = lost(run_of(killed(1, 10.1, 15), ended(0, 10.2)), 0, 10.2)
    assert ended_by(run).ranks == (1,)
    assert "by SIGTERM, and others lost" in ended_by(run).title
    for seen, rank in ((10.21, 1), (10.4, 0)):  # a moment later than the other was told of it
        run = lost(run_of(killed(1, seen, 15), left(0, 10.3, 1)), 0, 10.2)
        assert ended_by(run).ranks == (rank,)
    run = lost(run_of(killed(1, 10.3, 15), ended(0, 10.2)), 0, 10.2)
    assert ended_by(run).ranks == (0,)
    for other in (
        lost(run_of(left(1, 10.3, 0), ended(0, 10.2)), 0, 10.2),
        lost(run_of(left(1, 10.1, 0), ended(0, 10.2)), 0, 10.2, "ValueError: no such file"),
    ):
        assert problems(other) == [("exception", 0, 10)]


def test_who_closed_its_recording_is_why_others_lost_it_although_nobody_saw_with_what_code() -> (
    None
):
    """As with `dsprof.attach` in the script, where nobody looks at the processes."""
    run = lost(run_of(ended(1, 10.1), ended(0, 10.2)), 0, 10.2)
    first = ended_by(run)
    assert (first.ranks, first.confidence) == ((1,), "medium")
    assert " finished before the others after step " in first.title
    assert "in good order, as far as its recording tells, and others lost" in first.title
    assert problems(lost(run_of(ended(1, 10.3), ended(0, 10.2)), 0, 10.2)) == [("exception", 0, 10)]


def test_who_was_asked_to_end_after_another_had_failed_has_not_failed() -> None:
    failed = lost(run_of(ended(0, 10.2), killed(1, 10.4, 15)), 0, 10.2, "ValueError: planted")
    assert sorted(problems(failed)) == [("exception", 0, 10), ("killed-by-launcher", 1, 10)]
    assert failed.problems["severity"].tolist() == ["critical", "warning"]
    before = lost(run_of(ended(0, 10.5), killed(1, 10.2, 15)), 0, 10.4, "ValueError: planted")
    assert "killed-by-launcher" not in set(before.problems["kind"])


def test_workers_that_all_exit_with_one_code_when_their_command_succeeds_did_not_fail() -> None:
    """As Ray's do, with code 1. What a command hides in a pipe it also reports as success."""
    well = {"over_with": 0}
    assert problems(run_of(killed(0, 10.1, 0, 1, **well), killed(1, 12.2, 0, 1, **well))) == []
    for failed in (
        run_of(killed(0, 12.1, 0, 1), killed(1, 10.2, 0, 1, over_with=1)),
        run_of(killed(0, 12.1, 15, **well), killed(1, 10.2, 0, 1, **well)),
        lost(run_of(killed(0, 12.1, 0, 1, **well), killed(1, 10.2, 0, 1, **well)), 0, 12.0),
    ):
        assert ended_by(failed).ranks == (1,)


def test_whom_one_that_ended_with_status_0_outlived_has_died() -> None:
    run = run_of(killed(0, 10.4, 0, 0), killed(1, 10.1, 0, 3))
    assert problems(run) == [("exit", 1, 10)]
    assert problems(run_of(killed(0, 10.4, 0, 0), killed(1, 10.1, 6))) == [("signal", 1, 10)]


def test_who_ended_all_others_waited_for_was_killed_in_the_end_and_hung_before() -> None:
    assert problems(run_of(ended(0, seconds=18.0), killed(1, 48.0, 9))) == [("absent", 1, 10)]


@pytest.mark.parametrize("signal", [0, 6, 15])
def test_whom_a_launcher_kills_because_another_is_gone_has_not_died_first(signal: int) -> None:
    """0: an exit without a word. Open MPI kills who does not end within a second."""
    run = run_of(killed(0, 10.1, signal), killed(1, 11.5, 9))
    assert run.problems["rank"].isna().all()
    assert (ended_by(run).rule, ended_by(run).ranks) == ("rank-died", ())


def test_who_waited_for_a_process_that_nobody_watched_has_not_died_first() -> None:
    """`dsprof attach` sees its own host alone."""
    since = {"name": "all_reduce", "seq": 57, "at": int((START + pd.Timedelta(seconds=10)).value)}
    elsewhere = process(1, host="w1", over_at=LATER, idle=30.0)
    assert problems(run_of(killed(0, 40.0, 9, in_flight=since), elsewhere)) == [("absent", 1, 10)]
    for waiting in (since, since | {"at": None}):
        run = run_of(killed(0, 10.1, 9, in_flight=waiting), elsewhere)
        assert problems(run) == [("signal", 0, 10)]


def test_ends_in_good_order_are_no_deaths() -> None:
    """A job that is cancelled; a process that crashes on its way out; a watchdog that aborts."""
    assert problems(run_of(ended(0), killed(1, 10.6, 11, ended=True, ended_at=LATER))) == []
    for signal in (15, 6):
        run = run_of(killed(0, 10.1, signal), killed(1, 10.2, 15))
        assert run.problems["rank"].isna().all()


def test_training_that_goes_on_has_no_problem() -> None:
    waiting = {"name": "all_reduce", "seq": 57, "at": LATER}
    assert run_of(process(0, idle=0.5), process(1, idle=0.5)).problems.empty
    assert run_of(process(0, in_flight=waiting, idle=0.5), process(1, idle=0.5)).problems.empty
    assert run_of(ended(0), ended(1)).problems.empty


def test_what_died_before_a_restart_is_an_earlier_failure() -> None:
    again: dict[str, Any] = {"segment": 1, "source": "again"}
    run = run_of(ended(0), process(1), ended(0, **again))
    assert "earlier-failure" in [one.rule for one in run.findings]


def test_a_launch_that_none_closed_and_another_followed_is_an_earlier_failure_of_no_rank() -> None:
    """As where the launcher ends all of them, once one was killed."""
    again: dict[str, Any] = {"segment": 1, "source": "again"}
    found = run_of(process(0), process(1), ended(0, **again)).findings
    past = next(one for one in found if one.rule == "earlier-failure")
    assert "no process of this launch closed its recording" in past.summary
    assert "Rank" not in past.summary
    assert run_of(process(0, idle=0.5), process(1, idle=0.5)).problems.empty


def inside(phase: str, class_: str = "other", *, over: bool = False) -> dict[str, Any]:
    at = int((START + pd.Timedelta(seconds=10.1)).value)
    return {"phase": {"name": phase, "class": class_, "over": over, "at": at}}


def standing(rank: int, stack: str, since: float = 10.5, lasted: float = 28.0) -> dict[str, Any]:
    """What was seen of a rank's stack for so many seconds."""
    return {
        "kind": "metric", "name": "standing", "raw": "standing", "seconds": lasted, "text": stack,
        "at": START + pd.Timedelta(seconds=since), "rank": rank, "segment": 0, "engine": 0,
        "line": 11, "record": 11, "source": f"rank-{rank}",
    }  # fmt: skip


def test_what_was_seen_of_a_stack_is_no_sign_that_a_process_goes_on() -> None:
    run = run_of(ended(0, seconds=40.0), process(1), rows=[standing(1, "f (./a.py:1)", 39.9)])
    assert problems(run) == [("absent", 1, 10)]


def test_where_all_are_surely_gone_in_the_middle_of_something_the_launch_is_over() -> None:
    """As after SIGKILL, which nobody saw. A process that ends with `os._exit` is in no phase."""
    middle = inside("data", "data")
    assert run_of(process(0, **middle), process(1, gone=True, **middle)).problems.empty
    between = inside("step", "optimizer", over=True)
    done = [process(rank, gone=True, **between) for rank in range(2)]
    assert run_of(*done).problems.empty
    run = run_of(process(0, gone=True, **middle), process(1, gone=True, **between))
    assert run.problems["kind"].tolist() == ["gone"]
    assert run.problems["rank"].isna().all()
    assert ended_by(run).summary.endswith(
        "Before that, rank 0 was in data since 12:00:10 UTC; rank 1 was between phases, after "
        "step, since 12:00:10 UTC."
    )


@pytest.mark.parametrize(
    ("phase", "waited", "kind"),
    [
        (inside("evaluation"), 500.0, "gone"),
        (inside("checkpoint", "checkpoint"), 500.0, "gone"),
        (inside("checkpoint", "checkpoint"), 700.0, "absent"),
        (inside("checkpoint", "checkpoint", over=True), 500.0, "absent"),
        (inside("data", "data"), 500.0, "absent"),
    ],
)
def test_a_save_or_an_evaluation_of_some_minutes_is_no_hang(
    phase: dict[str, Any], waited: float, kind: str
) -> None:
    run = run_of(ended(0, seconds=10 + waited), process(1, **phase))
    assert problems(run) == [(kind, 1, 10)]


@pytest.mark.parametrize(("before", "kind"), [(2.0, "absent"), (10.0, "gone")])
def test_a_save_that_takes_far_longer_than_those_before_hangs(before: float, kind: str) -> None:
    row = {
        "kind": "phase", "name": "checkpoint", "raw": "checkpoint", "seconds": before, "step": 10,
        "segment": 0, "engine": 0, "line": 11, "record": 11, "source": "rank-1", "rank": 1,
        "at": START,
    }  # fmt: skip
    stuck = process(1, **inside("checkpoint", "checkpoint"))
    assert problems(run_of(ended(0, seconds=110.0), stuck, rows=[row])) == [(kind, 1, 10)]


def test_a_process_that_is_there_has_not_ended_though_another_one_has() -> None:
    """It may still save, evaluate by hand, or end."""
    for idle in (2.0, 20.0):
        there: dict[str, Any] = {"alive_at": LATER, "idle": idle}
        assert run_of(ended(0), process(1, **there)).problems.empty
        assert run_of(ended(0, seconds=40.0), process(1, **there)).problems.empty
    assert problems(run_of(ended(0, seconds=40.0), process(1, alive_at=LATER))) == [
        ("absent", 1, 10)
    ]


def test_a_launch_is_not_over_while_its_processes_are_there_though_its_command_is() -> None:
    over = {"over_at": LATER, "over_with": 1, "alive_at": LATER, "idle": 30.0}
    run = run_of(process(0, **over, **inside("forward")), process(1, **over, **inside("forward")))
    assert run.problems.empty
    moment = int((START + pd.Timedelta(seconds=12)).value)
    waits = {"in_flight": {"name": "all_reduce", "seq": 57, "at": moment}}
    for idle in (2.0, 100.0):
        there = {"over_at": moment, "alive_at": moment, "idle": idle}
        assert run_of(process(0, **there | waits), process(1, **there)).problems.empty


def test_ranks_that_wait_in_different_collectives_hang_though_none_is_missing() -> None:
    """As where one has fewer batches, and goes to a barrier while the others reduce gradients."""
    since = int((START + pd.Timedelta(seconds=10.3)).value)
    calls: list[dict[str, Any]] = [
        {"in_flight": {"name": name, "seq": 7, "at": since}} for name in ("all_reduce", "barrier")
    ]
    seen: dict[str, Any] = {"alive_at": LATER}
    for run in (
        run_of(killed(0, 40.0, 15, **calls[0]), killed(1, 40.0, 15, **calls[1])),
        run_of(process(0, **seen | calls[0]), process(1, **seen | calls[1])),
    ):
        assert run.problems["kind"].tolist() == ["desync"]
        assert run.problems["rank"].isna().all()
    soon: dict[str, Any] = {"over_at": since + 15 * 10**9}
    for other in (
        run_of(process(0, **seen | calls[0]), process(1, **seen | calls[0])),
        run_of(process(0, idle=30.0, **seen | calls[0]), process(1, idle=30.0, **seen | calls[1])),
        run_of(killed(0, 25.0, 15, **calls[0] | soon), killed(1, 25.0, 15, **calls[1] | soon)),
        run_of(process(0, **calls[0]), process(1, **calls[1])),
    ):
        assert "desync" not in set(other.problems["kind"])


def test_where_a_rank_is_not_recorded_it_may_be_what_all_others_wait_for() -> None:
    since = int((START + pd.Timedelta(seconds=10.3)).value)
    waits = [
        process(rank, alive_at=LATER, in_flight={"name": name, "seq": 7, "at": since})
        for rank, name in enumerate(("all_reduce", "barrier"))
    ]
    world = {"kind": "config", "name": "world_size", "value": 3.0, "segment": 0, "engine": 0,
             "line": 0, "record": 0, "source": "rank-0", "at": START}  # fmt: skip
    assert run_of(*waits, rows=[world]).problems.empty
    assert not run_of(*waits, rows=[world | {"value": 2.0}]).problems.empty


def test_a_job_beside_another_one_in_the_same_folder_is_not_over_when_that_begins() -> None:
    rows = [
        {"kind": "metric", "name": "loss", "value": 1.0, "segment": 0, "engine": 0, "line": line,
         "record": line, "source": "rank-0", "rank": 0, "at": START + pd.Timedelta(seconds=line)}
        for line in range(11, 100)
    ]  # fmt: skip
    other: dict[str, Any] = {"segment": 1, "source": "other"}
    assert run_of(process(0, idle=1.0), ended(0, **other), rows=rows).problems.empty
    assert not run_of(process(0, idle=1.0), ended(0, **other)).problems.empty


def test_a_job_that_was_stopped_as_a_whole_does_not_hang() -> None:
    """As by a scheduler that suspends it; a single rank in a debugger lets the others wait."""
    moment = int((START + pd.Timedelta(seconds=10.3)).value)
    waits = {"in_flight": {"name": "all_reduce", "seq": 57, "at": moment}, "alive_at": LATER}
    stopped: dict[str, Any] = {"alive_at": LATER, "stopped": True}
    assert run_of(process(0, **waits | stopped), process(1, **stopped)).problems.empty
    assert problems(run_of(process(0, **waits), process(1, **stopped))) == [("absent", 1, 10)]


def test_a_rank_that_is_silent_as_long_as_it_has_been_before_does_not_hang() -> None:
    """As rank 0 that reads another shard, while the others wait for it."""
    both = [
        killed(0, 40.0, 15, **inside("data", "data")),
        killed(1, 40.0, 15, in_flight={"name": "all_reduce", "seq": 57, "at": LATER}),
    ]
    assert problems(run_of(*both)) == [("absent", 0, 10)]
    rows = [
        {"kind": "metric", "name": "step_seconds", "seconds": 1.0, "step": 0, "steps": 1,
         "rank": 0, "segment": 0, "engine": 0, "line": 20 + step, "record": 20 + step,
         "source": "rank-0", "at": START - pd.Timedelta(seconds=20 + step)}
        for step in (2, 1)
    ]  # fmt: skip
    found = run_of(*both, rows=rows).problems
    assert found[["kind", "value"]].to_numpy().tolist() == [["signal", 15.0]]


def test_a_rank_between_phases_may_evaluate_for_a_while_before_training_stands_still() -> None:
    """No recording sees what evaluates another module than the one that trains."""
    for seconds, kind in ((25.0, "signal"), (80.0, "absent")):
        at = int((START + pd.Timedelta(seconds=seconds)).value)
        waits = {"name": "all_reduce", "seq": 57, "at": LATER}
        last = killed(0, seconds, 15, over_at=at, **inside("step", over=True))
        run = run_of(last, killed(1, seconds, 15, over_at=at, in_flight=waits))
        assert run.problems["kind"].tolist() == [kind]
    first = ended_by(run)
    assert (first.rule, first.confidence) == ("hang", "medium")
    assert first.title.startswith("Training stood still after step 10: rank 0 was between phases")


def test_who_is_there_between_phases_may_evaluate_for_a_minute() -> None:
    for seconds, kinds in ((40.0, []), (80.0, ["absent"])):
        at = int((START + pd.Timedelta(seconds=seconds)).value)
        waits = {"name": "all_reduce", "seq": 57, "at": int(START.value) + 10_300_000_000}
        last = process(0, alive_at=at, **inside("step", over=True))
        run = run_of(last, process(1, alive_at=at, in_flight=waits))
        assert run.problems["kind"].tolist() == kinds


def test_a_rank_between_phases_hung_if_the_others_waited_for_longer_than_they_may() -> None:
    """Rank 1 gave up after the 8 s that gloo's timeout allowed."""
    said = "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv"
    row = {
        "kind": "problem", "name": "exception", "raw": "exception", "text": f"RuntimeError: {said}",
        "step": 10, "rank": 1, "segment": 0, "engine": 0, "line": 20, "record": 20,
        "source": "rank-1", "at": START + pd.Timedelta(seconds=18.5),
    }  # fmt: skip
    last = killed(0, 19.5, 15, **inside("step", over=True))
    run = run_of(last, ended(1, seconds=18.6), rows=[row])
    first = ended_by(run)
    assert (first.rule, first.ranks, first.confidence) == ("hang", (0,), "high")
    assert first.title.startswith("Training hung after step 10: rank 0 was between phases for 9.4")
    in_time = run_of(last, ended(1, seconds=18.6))
    assert "hang" not in {one.rule for one in in_time.findings}
