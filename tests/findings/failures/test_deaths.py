"""How a run ended: who was first, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dsprof.events import Severity
from dsprof.findings import Finding, findings_of
from dsprof.findings.failures import ends
from dsprof.recording import Writer
from dsprof.run import Run, load
from tests.findings.plants import (
    WELL,
    Row,
    alone,
    metric,
    problem,
    quiet,
    rules,
    run_of,
    silent,
    steps,
)
from tests.loaded import run_of_text
from tests.recording.recorded import MS, header, write_steps
from tests.text.said import shown

SLOW = {"forward": 0.3, "backward_inner": 0.2, "backward_allreduce": 0.5}
FAILED = "deepspeed.checkpoint_failed"  # a pattern that calls it critical
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total "
    "capacity of 79.15 GiB of which 1.20 GiB is free."
)


def test_a_failure_comes_before_all_that_only_slows_the_run() -> None:
    run = run_of([*steps(40, SLOW), problem("oom", OOM, rank=3, host="w1", step=40)], world_size=4)
    assert rules(run)[:2] == ["oom", "communication-bound"]


def test_an_error_of_the_launcher_as_it_is_told_to_stop_is_no_exception_of_the_job() -> None:
    packages = "/opt/conda/lib/python3.8/site-packages/deepspeed/launcher"
    raised = [
        "Traceback (most recent call last):\n",
        f'  File "{packages}/runner.py", line 548, in sigkill_handler\n',
        "    result_kill = subprocess.Popen(kill_cmd, env=env)\n",
        "NameError: free variable 'kill_cmd' referenced before assignment in enclosing scope\n",
    ]
    found = alone(run_of_text(*raised), "rank-died")
    assert found.title.endswith("Ctrl-C or SIGTERM reached DeepSpeed's launcher")
    own = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\nKeyError: 3\n'
    found = alone(run_of_text(own, *raised), "rank-died")
    assert found.title.startswith("A process ended with an exception: KeyError: 3")


def test_the_code_that_is_sshs_own_is_a_lost_connection() -> None:
    failed = {"host": "w2", "step": 40}
    run = run_of(
        [*steps(40, WELL), problem("exit", "ssh exited with exit code 255", value=255.0, **failed)]
    )
    found = alone(run, "rank-died")
    assert found.title.startswith("Most likely the connection to w2 was lost after step 40: ssh")
    assert found.confidence == "medium"
    run = run_of(
        [*steps(40, WELL), problem("exit", "ssh exited with exit code 1", value=1.0, **failed)]
    )
    assert "exited with an error" in alone(run, "rank-died").title


def test_the_exception_that_was_first_is_named_and_its_victims_are_not() -> None:
    rows = [
        problem("exception", "RuntimeError: bad batch", rank=1, host="w0", step=7),
        problem("connection", "Connection closed by peer", rank=0, host="w0", step=7),
    ]
    found = alone(run_of([*steps(10, WELL), *rows]), "rank-died")
    assert found.title.startswith("Rank 1 on w0 ended with an exception after step 7: RuntimeError")
    assert found.ranks == (1,)
    assert found.steps == (7, 7)


def test_signal_9_is_called_by_its_name_and_its_usual_cause() -> None:
    run = run_of([*steps(10, WELL), problem("exit", "exits with return code = -9", value=-9)])
    found = alone(run, "rank-died")
    assert "was killed by SIGKILL" in found.title
    assert "out-of-memory killer" in found.summary


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Assertion `srcIndex < srcSelectDimSize` failed", "failed an assertion"),
        ("Memory access fault by GPU node-2 on address 0x18", "was ended by its GPU's runtime"),
        ("free(): invalid pointer", "found its memory damaged"),
        ("execute failed, reason=[task timeout]", "waited for its NPU until that timed out"),
        ("TypeError: step(): no such argument", "ended with an exception"),
    ],
)
def test_what_ends_a_process_without_an_exception_is_called_none(text: str, said: str) -> None:
    found = alone(run_of([problem("exception", text, rank=1)]), "rank-died")
    assert found.title == f"Rank 1 {said}: {text}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Exception: Current loss scale already at minimum", "the loss scale cannot shrink"),
        ("Exception: Skipped 50 iterations in a row due to Overflow", "too many steps in a row"),
    ],
)
def test_a_run_that_gave_up_on_overflows_is_told_by_what_it_gave_up_on(
    text: str, said: str
) -> None:
    found = alone(run_of([problem("overflow-limit", text, rank=2)]), "rank-died")
    assert found.title.startswith(f"Rank 2 ended because {said}")


def test_a_taken_port_advises_another() -> None:
    found = alone(run_of([problem("port-in-use", "EADDRINUSE", rank=0)]), "rank-died")
    assert found.advice[0].setting == "--master_port"


def test_a_checkpoint_that_could_not_be_written_is_what_ended_a_process() -> None:
    rows = [problem("checkpoint-failed", "Failed saving", rank=0), problem("exit", "1", value=1)]
    found = alone(
        run_of([*steps(10, WELL), *(row | {"pattern": FAILED} for row in rows)]), "rank-died"
    )
    assert found.title == "Rank 0 could not write a checkpoint after step 10: Failed saving"
    assert found.advice[0].setting == "storage"


def test_a_survived_error_is_a_warning_and_no_verdict() -> None:
    wandb = problem("exception", "requests.exceptions.ConnectionError: retrying")
    for kind, text in (("exception", str(wandb["text"])), ("oom", OOM)):
        run = run_of([*steps(5, SLOW), problem(kind, text), *steps(59, SLOW)[15:]], world_size=4)
        found = alone(run, "earlier-failure")
        assert found.severity is Severity.WARNING
        assert found.title == "An error was survived: training went on to step 59"
        assert rules(run)[0] == "communication-bound"
        assert is_last_warning(run, "earlier-failure")
        assert not {"oom", "rank-died"} & set(rules(run))


def is_last_warning(run: Run, rule: str) -> bool:
    others = [one.rule for one in run.findings[1:] if one.severity is Severity.WARNING]
    return others[-1:] == [rule]


def test_a_failed_earlier_launch_stands_before_notes_and_behind_the_verdict() -> None:
    logs = Path(__file__).parents[3] / "sample_logs"
    texts = [(logs / f"{name}_0.19.8.log").read_text() for name in ("killed_rank", "straggler")]
    found = run_of_text("".join(texts)).findings
    at = [one.rule for one in found].index("earlier-failure")
    assert {one.severity for one in found[at + 1 :]} == {Severity.INFO}
    failed = [*steps(7, SLOW), problem("exit", "exits with return code = 1", value=1)]
    run = run_of([*failed, *of_launch(1, steps(60, {}))])
    assert rules(run)[:2] == ["unaccounted-time", "earlier-failure"]
    assert run.findings[0].severity is Severity.INFO


def test_a_healthy_launch_behind_one_that_failed_is_called_healthy() -> None:
    failed = [*steps(7, WELL), problem("exit", "exits with return code = 1", value=1)]
    run = run_of([*failed, *of_launch(1, steps(60, WELL))], world_size=2, zero_stage=1)
    assert rules(run)[:2] == ["healthy", "earlier-failure"]


def test_a_survived_error_alone_leaves_the_verdict_to_what_is_known() -> None:
    rows = [metric("loss", step, 1.0) for step in range(1, 60)]
    run = run_of([*rows[:5], problem("exception", "ConnectionError: retrying in 5 s"), *rows[5:]])
    assert rules(run)[0] != "earlier-failure"
    assert alone(run, "earlier-failure").summary.startswith("Printed after step 5: ConnectionError")


def of_launch(segment: int, rows: list[Row]) -> list[Row]:
    return [row | {"segment": segment} for row in rows]


def test_a_launch_that_failed_before_one_that_did_not_is_no_verdict() -> None:
    run = run_of(
        [*steps(7, SLOW), problem("oom", OOM, rank=1), *of_launch(1, steps(20, SLOW))],
        world_size=4,
    )
    found = alone(run, "earlier-failure")
    assert found.title == (
        "An earlier launch failed: Rank 1 ran out of GPU memory after step 7; the last one came to "
        "step 20 and shows no failure"
    )
    assert found.summary.startswith("Launch 1 of 2: Rank 1 ran out of GPU memory after step 7: ")
    assert "oom" not in rules(run)
    assert rules(run)[0] == "communication-bound"


def test_a_failure_behind_which_a_restart_trains_no_step_is_the_verdict() -> None:
    begun = of_launch(1, [metric("world_size", None, 4)])
    failed = problem("oom", OOM, rank=1, step=7)
    rows = [*steps(7, SLOW), failed, *begun]
    run = run_of(rows, world_size=4)
    assert rules(run)[0] == "oom"
    found = alone(run, "oom")
    assert found.title == "Rank 1 ran out of GPU memory after step 7"
    assert "It is the only failure that was read of launch 1 of 2." in found.summary
    assert "The launch after it prints no step and no failure." in found.summary
    assert "earlier-failure" not in rules(run)
    again = run_of([*rows, *of_launch(2, begun)], world_size=4)
    assert "The 2 launches after it print no step and no failure." in alone(again, "oom").summary


def test_a_failure_behind_which_a_launch_trained_or_ended_well_is_no_verdict() -> None:
    failed, begun = problem("oom", OOM, rank=1), metric("world_size", None, 4)
    trained = [*steps(7, SLOW), failed, *of_launch(1, steps(9, SLOW)), *of_launch(2, [begun])]
    ended = [*steps(7, SLOW), failed, *of_launch(1, [metric("exited_well", None, 4.0)])]
    for rows in (trained, ended):
        run = run_of(rows, world_size=4)
        assert "oom" not in rules(run)
        assert is_last_warning(run, "earlier-failure")


def test_a_cause_behind_what_it_led_to_is_not_said_to_be_the_first_message() -> None:
    waited = (
        "[E ProcessGroupNCCL.cpp:474] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for "
        "1800790 milliseconds before timing out.\n"
    )
    raised = 'Traceback (most recent call last):\n  File "t.py", line 1, in f\nValueError: no\n'
    assert alone(run_of_text(waited, raised), "rank-died").summary.startswith(
        "It is the likeliest cause of the failure messages in the source, some before it."
    )
    assert alone(run_of_text(raised, waited), "rank-died").summary.startswith(
        "It was the first failure in the source; other messages come after it."
    )


def test_each_launch_has_its_own_failure_and_its_own_victims() -> None:
    failed = [problem("exception", "RuntimeError: x", rank=1), problem("exit", "1", value=1)]
    run = run_of([*failed, *of_launch(1, failed), *of_launch(2, failed)])
    assert alone(run, "rank-died").summary == (
        "It was the first failure of the last of 3 launches; other messages come after it."
    )
    found = alone(run, "earlier-failure")
    assert found.title == "2 earlier launches failed too: Rank 1 ended with an exception"
    assert found.summary == (
        "Launches 1 and 2 of 3: Rank 1 ended with an exception: RuntimeError: x."
    )


def test_earlier_launches_that_failed_each_in_its_way_are_told_one_by_one() -> None:
    first, second = problem("oom", OOM, rank=1), problem("exception", "KeyError: x", rank=0)
    found = alone(
        run_of([first, *of_launch(1, [second]), *of_launch(2, [first])]), "earlier-failure"
    )
    assert found.title == "2 earlier launches failed too"
    assert found.summary.startswith("Launch 1 of 3: Rank 1 ran out of GPU memory")
    assert "Launch 2 of 3: Rank 0 ended with an exception: KeyError: x." in found.summary


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("watchdog", "Rank 2 waited for a collective until it timed out after step 7"),
        ("stuck", "Rank 2 was ended: NCCL's watchdog was stuck after step 7"),
        ("absent", "Rank 2 hung after step 7"),
        ("desync", "Rank 2 was ended: ranks stood at different collectives after step 7"),
    ],
)
def test_an_earlier_launch_that_hung_is_told_by_who_waited_or_did_not_come(
    kind: str, said: str
) -> None:
    hung = problem(kind, "timeout", rank=2, step=7)
    run = run_of([*steps(7, SLOW), hung, *of_launch(1, steps(20, SLOW))], world_size=4)
    assert alone(run, "earlier-failure").summary.startswith(f"Launch 1 of 2: {said}")


@pytest.mark.parametrize(
    ("rule", "kind", "text", "placed"),
    [
        ("oom", "oom", OOM, {"source": "1.log"}),
        (
            "rank-died", "exception", "ValueError: bad",
            {"source": "errors.txt", "at": pd.Timestamp(2024, 5, 6)},
        ),
        (
            "hang", "watchdog", "Watchdog caught collective operation timeout",
            {"source": "errors.txt", "step": 3},
        ),
        ("hang", "stuck", "watchdog got stuck", {"source": "1_rank1.log"}),
    ],
)  # fmt: skip
def test_a_failure_of_a_file_without_times_and_steps_may_be_of_any_launch(
    rule: str, kind: str, text: str, placed: dict[str, Any]
) -> None:
    """What places it does so whatever failed: each failure is placed in one of the ways."""
    launches = [*of_launch(0, steps(9, WELL)), *of_launch(1, steps(9, WELL))]
    told = [row | {"source": f"{row['segment']}.log"} for row in launches]

    def said(**more: Any) -> Finding:
        return alone(run_of([*told, problem(kind, text, rank=1, segment=1, **more)]), rule)

    apart = said(source="errors.txt")
    assert apart.confidence == "low"
    assert "Low confidence: nothing shows to which of 2 launches it belongs" in apart.summary
    assert "Medium confidence" not in apart.summary
    there = said(**placed)
    assert there.confidence != "low"
    assert "Nothing tells" not in there.summary


def test_a_run_of_which_nothing_is_known_yet_has_not_failed() -> None:
    run = run_of([])
    for rule in ("oom", "rank-died", "hang", "earlier-failure"):
        assert quiet(run, rule)


def test_a_run_that_did_not_fail_has_no_failure() -> None:
    run = run_of(steps(40, WELL), world_size=4, zero_stage=1)
    assert findings_of(run)[0].rule == "healthy"
    for rule in ("oom", "rank-died", "hang"):
        assert silent(run, rule)


def test_a_port_that_one_address_refuses_ends_nothing(tmp_path: Path) -> None:
    """c10d tries IPv6, then IPv4: only where it can listen nowhere is the port taken."""
    said = (
        "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 "
        "(errno: 98 - Address already in use).\n"
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [a]:29500 "
        "(errno: 110 - Connection timed out).\n"
    )
    ended = (
        "[E socket.cpp:462] [c10d] The server socket has failed to listen on any local "
        "network address.\n"
    )
    for text, found in ((said, ["unaccounted-time"]), (said + ended, ["rank-died"])):
        (tmp_path / "run.log").write_text(text, encoding="utf-8")
        assert rules(load(tmp_path / "run.log"))[:1] == found


ENDED = """[2026-11-21 05:49:21,956] [INFO] [launch.py:170:main] dist_world_size=2
[2026-11-21 05:50:00,000] [INFO] [logging.py:107:log_dist] [Rank 0] step=10, skipped=0, lr=[0.1], mom=[0]
[2026-11-21 05:50:10,000] [INFO] [logging.py:107:log_dist] [Rank 0] step=20, skipped=0, lr=[0.1], mom=[0]
Traceback (most recent call last):
  File "train.py", line 9, in upload
ConnectionError: no route to the hub
[2026-11-21 05:52:22,114] [INFO] [launch.py:351:main] Process 31114 exits successfully.
[2026-11-21 05:52:22,114] [INFO] [launch.py:351:main] Process 31115 exits successfully.
"""  # noqa: E501


def test_an_error_of_a_launch_that_ended_well_is_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(ENDED, encoding="utf-8")
    found = findings_of(load(tmp_path / "run.log"))
    assert found[0].rule not in {"rank-died", "earlier-failure"}
    titles = [one.title for one in found]
    assert "The launch ended well; an error was printed on the way" in titles


@pytest.mark.parametrize(
    "other",
    [
        "",  # the log was cut before
        "[2026-11-21 05:52:22,114] [INFO] [launch.py:316:sigkill_handler] Killing subprocess 31115",
        "[2026-11-21 05:52:22,114] [ERROR] [launch.py:322] ['python'] exits with return code = 1",
    ],
)
def test_a_launch_of_which_one_process_ended_well_may_have_failed(
    tmp_path: Path, other: str
) -> None:
    text = "".join([*ENDED.splitlines(keepends=True)[:-1], other, "\n"])
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    assert findings_of(load(tmp_path / "run.log"))[0].rule == "rank-died"


WELL_ENDED = "".join(ENDED.splitlines(keepends=True)[i] for i in (0, 1, 2, 6, 7))
TRACEBACK = """Traceback (most recent call last):
  File "reader.py", line 12, in close
    self._close()
OSError: [Errno 9] Bad file descriptor
"""


ON_THE_WAY = "".join(ENDED.splitlines(keepends=True)[:3])


@pytest.mark.parametrize(
    ("word", "before"),
    [
        ("Exception ignored in: <function Reader.__del__ at 0x7f00>", ON_THE_WAY),
        ("Exception ignored in: <function Reader.__del__ at 0x7f00>", WELL_ENDED),
        ("Exception ignored in atexit callback: <function close at 0x7f00>", ON_THE_WAY),
        ("Error in atexit._run_exitfuncs:", ON_THE_WAY),
        ("Exception in thread Thread-1 (upload):", ON_THE_WAY),
        ("Exception in thread Thread-5:      | loss = 0.000     | ll = -0.086", ON_THE_WAY),
        (
            "Task exception was never retrieved\nfuture: <Task finished name='Task-1' coro=<f()>>",
            ON_THE_WAY,
        ),
    ],
)
def test_an_exception_that_python_only_prints_ends_no_process(
    tmp_path: Path, word: str, before: str
) -> None:
    """In the middle of a launch; behind one that ended well it is no failure whatever it is."""
    (tmp_path / "run.log").write_text(f"{before}{word}\n{TRACEBACK}", encoding="utf-8")
    run = load(tmp_path / "run.log")
    assert ends.first_failure(run) is None
    assert "rank-died" not in rules(run)


def test_an_exception_behind_one_that_python_only_printed_is_the_failure(tmp_path: Path) -> None:
    own = TRACEBACK.replace("OSError: [Errno 9] Bad file descriptor", "ValueError: no")
    text = f"Exception in thread Thread-1:\n{TRACEBACK}{own}"
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    found = alone(load(tmp_path / "run.log"), "rank-died")
    assert found.title == "A process ended with an exception: ValueError: no"
    assert "the only failure" in found.summary


CHAINED = "\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize(
    ("word", "ends_it"), [("Exception in thread Thread-1:\n", False), ("", True)]
)
def test_a_chain_of_exceptions_is_printed_or_fatal_as_its_first_one_is(
    tmp_path: Path, word: str, *, ends_it: bool
) -> None:
    text = word + CHAINED.join([TRACEBACK, TRACEBACK, TRACEBACK])
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    run = load(tmp_path / "run.log")
    assert len(run.problems) == 3
    assert ("rank-died" in rules(run)) is ends_it


CANCELLED = "slurmstepd: error: *** STEP 123.0 ON node7 CANCELLED AT 2026-11-21T07:00:00 ***\n"


def test_a_launch_that_had_ended_well_was_not_ended_by_what_comes_later(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(WELL_ENDED + CANCELLED, encoding="utf-8")
    assert "rank-died" not in rules(load(tmp_path / "run.log"))


def test_a_launch_of_which_a_process_had_not_ended_yet_was_ended_by_the_scheduler(
    tmp_path: Path,
) -> None:
    text = "".join(WELL_ENDED.splitlines(keepends=True)[:-1]) + CANCELLED
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    assert "was ended by the scheduler" in alone(load(tmp_path / "run.log"), "rank-died").title


GONE = "NET/IB : Got completion from peer 10.0.0.7<38536> with error 12, opcode 0, len 0\n"


def test_the_link_that_ended_a_process_comes_before_the_exceptions_it_raised(
    tmp_path: Path,
) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "terminate called after throwing an instance of 'std::runtime_error'\n"
        "  what():  NCCL error: remote process exited or there was a network error\n"
        "Last error:\n" + GONE
    )
    found = alone(load(log), "rank-died")
    assert found.title.startswith("A process lost its network link: NET/IB")
    assert "retries ran out" in found.summary
    assert quiet(load(log), "network-fallback")


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (
            "network-error",
            "Connect to 10.0.0.7<36123> failed : Connection refused",
            "could not connect to a peer",
        ),
        (
            "rendezvous",
            "RendezvousConnectionError: The connection to the C10d store has failed.",
            "did not reach the rendezvous store, or lost it",
        ),
    ],
)
def test_an_address_nobody_answers_at_is_no_link_that_was_lost(
    kind: str, text: str, said: str
) -> None:
    run = run_of([problem(kind, text, rank=0), problem("exit", "", value=1.0)])
    assert alone(run, "rank-died").title == f"Rank 0 {said}: {text}"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("connection", "Net : Connection closed by remote peer"),
        ("exception", "RuntimeError: NCCL communicator was aborted on rank 60."),
    ],
)
def test_a_message_that_follows_another_failure_alone_does_not_pass_for_the_cause(
    kind: str, text: str
) -> None:
    found = alone(run_of([problem(kind, text, rank=60)]), "rank-died")
    assert "something failed before" in found.summary
    assert [advice.setting for advice in found.advice] == ["logs of the other ranks and hosts"]
    cause = problem("exception", "KeyError: 'labels'", rank=1)
    found = alone(run_of([problem(kind, text, rank=60), cause]), "rank-died")
    assert "something failed before" not in found.summary


def test_processes_that_the_launcher_ended_without_a_word_are_the_verdict() -> None:
    killed = problem("killed-by-launcher", "Killing subprocess 4101", pattern="launcher.killing")
    found = alone(run_of([*steps(40, WELL), killed | {"step": 40}]), "rank-died")
    assert found.title == "The launcher ended its processes after step 40; nothing here says why"
    named = problem("exit", "exits with return code = -9", value=-9)
    assert "SIGKILL" in alone(run_of([*steps(40, WELL), killed, named]), "rank-died").title
    assert quiet(run_of([killed, *steps(40, WELL)]), "rank-died")
    well = metric("exited_well", None, 0.0)
    again = of_launch(1, [*steps(40, WELL), killed | {"step": 40}])
    assert "nothing here says why" in alone(run_of([well, *again]), "rank-died").title
    assert quiet(run_of([*again, *of_launch(1, [well])]), "rank-died")


LOST = (
    "[rank6]:[W929 10:15:17.529361055 TCPStore.cpp:125] [c10d] recvValue failed on "
    "SocketImpl(fd=7, addr=[w1]:60950, remote=[w0]:29500): Connection reset by peer\n"
)


def test_a_store_that_went_away_is_the_verdict_where_nothing_else_is_told() -> None:
    found = alone(run_of_text(LOST, LOST.replace("15:17", "15:18")), "rank-died")
    assert found.title.startswith("The store through which ranks meet no longer answered")
    assert found.severity is Severity.WARNING
    over = "{'train_runtime': 42.5, 'train_samples_per_second': 8.5, 'epoch': 1.0}\n"
    assert quiet(run_of_text(over, LOST), "rank-died")  # as it usually is then
    lost = problem("store-lost", "Broken pipe")
    assert quiet(run_of([*steps(40, WELL), lost]), "rank-died")
    cause = problem("exception", "KeyError: 'labels'", rank=1)
    assert "KeyError" in alone(run_of([lost, cause]), "rank-died").title


def test_an_exception_of_the_thread_that_feeds_a_queue_ends_no_process() -> None:
    found = alone(
        run_of_text(
            "Traceback (most recent call last):\n",
            '  File "/usr/lib/python3.11/multiprocessing/queues.py", line 239, in _feed\n',
            "    obj = _ForkingPickler.dumps(obj)\n",
            "OSError: handle is closed\n",
            "[2026-02-06 16:38:58,013] [ERROR] [launch.py:324:sigkill_handler] "
            "['python', 'train.py'] exits with return code = -9\n",
        ),
        "rank-died",
    )
    assert found.title.startswith("A process was killed by SIGKILL")


def test_a_script_that_stops_at_a_loss_that_is_none_ended_of_that() -> None:
    stops = problem("nan", "Loss is nan, stopping training", step=40)
    ended = problem("exit", "exitcode 1", value=1.0, step=40)
    found = alone(run_of([*steps(40, WELL), stops, ended]), "rank-died")
    assert found.title.startswith("A process stopped because its loss is not a number after step")
    skipped = problem("nan", "loss is NaN", step=40)
    found = alone(run_of([*steps(40, WELL), skipped, ended]), "rank-died")
    assert found.title.startswith("A process exited with an error")
    assert quiet(run_of([*steps(40, WELL), skipped]), "rank-died")


def test_what_a_worker_of_a_data_loader_raised_is_told_as_it_said() -> None:
    found = alone(
        run_of_text(
            "[rank1]: Traceback (most recent call last):\n",
            '[rank1]:   File "/opt/torch/_utils.py", line 428, in reraise\n',
            "[rank1]:     raise self.exc_type(msg)\n",
            "[rank1]: IndexError: Caught IndexError in DataLoader worker process 2.\n",
            "[rank1]: Original Traceback (most recent call last):\n",
            '[rank1]:   File "/data/train/pages.py", line 122, in __getitem__\n',
            "[rank1]:     box = boxes[i]\n",
            "[rank1]: IndexError: list index out of range\n",
        ),
        "rank-died",
    )
    assert found.title == "Rank 1 ended with an exception: IndexError: list index out of range"
    assert found.advice == ()


def test_a_command_line_that_is_not_taken_is_told_and_not_the_code_that_follows() -> None:
    header = "[2026-11-23 22:41:55,673] [ERROR] [launch.py:325:sigkill_handler] "
    usage = "usage: train.py [-h] [--steps STEPS]\n"
    error = "train.py: error: unrecognized arguments: --setps 10\n"
    ended = "['python3', '-u', 'train.py', '--local_rank=1'] exits with return code = 2\n"
    found = alone(run_of_text(2 * (usage + error) + header + ended), "rank-died")
    assert found.title == (
        "A process rejected its command line: error: unrecognized arguments: --setps 10"
    )
    assert found.evidence[0].line == 2
    assert found.advice[0].setting == "command line of the script"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("multiprocessing.api.SignalException: Process 19 got signal: 15", "was killed by SIGTERM"),
        ("rendezvous.api.RendezvousClosedError", "found the rendezvous closed"),
        ("rendezvous.api.RendezvousTimeoutError", "did not find the other workers"),
    ],
)
def test_an_exception_of_torchruns_own_process_is_the_launchers_and_no_ranks(
    error: str, said: str
) -> None:
    lines = 'Traceback (most recent call last):\n  File "/opt/bin/torchrun", line 8, in <module>\n'
    told = f"{lines}torch.distributed.elastic.{error}\n"
    for text, who in ((told, ""), (told.replace("T", "1: T", 1).replace("\nt", "\n1: t"), " on")):
        found = alone(run_of_text(text), "rank-died")
        assert found.title.startswith(f"The launcher{who}")
        assert said in found.title
        assert found.ranks == ()


def test_the_step_that_a_recorded_launch_came_to_has_ended(tmp_path: Path) -> None:
    """What it saved behind that counts to the next one."""
    for launch, last in enumerate((4, 10)):
        writer = Writer.create(tmp_path, header(launch=str(launch), restart=launch))
        write_steps(writer, 1, last)
        if launch:
            writer.span(writer.name("checkpoint", 0, "checkpoint"), 1200 * MS, 1300 * MS, last + 1)
        else:
            writer.problem("exception", "ValueError: bad")
        writer.close()
    run = load(tmp_path)
    assert alone(run, "earlier-failure").title == (
        "An earlier launch failed: Rank 0 on worker-1 ended with an exception after step 4; the "
        "last one came to step 10 and shows no failure"
    )
    assert "1 to 10, 14 recorded, in 2 launches" in " ".join(shown(run).split())


_OVER = "{'train_runtime': 42.5, 'train_samples_per_second': 8.5, 'epoch': 1.0}\n"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            "rank-died",
            "E1126 23:28:11.641000 41 api.py:869] failed (exitcode: -9) local_rank: 1 (pid: 42)\n",
        ),
        (
            "hang",
            "[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] Heartbeat monitor timed out! It ends.\n",
        ),
        (
            "oom",
            "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
        ),
    ],
)
def test_of_what_failed_behind_training_it_is_said_that_training_was_over(
    rule: str, said: str
) -> None:
    told = "The trainer had said that training was over"
    assert told in alone(run_of_text(_OVER, said), rule).summary
    assert told not in alone(run_of_text(said, _OVER), rule).summary
    again = "{'loss': 1.25, 'learning_rate': 1e-05, 'epoch': 0.5}\n"
    assert told not in alone(run_of_text(_OVER, again, said), rule).summary


def test_an_autotuner_whose_experiments_fail_sends_to_their_own_logs() -> None:
    head = "[2026-03-02 13:51:46,927] [ERROR] [autotuner.py:699:model_info_profile_run] "
    said = f"{head}The model is not runnable with DeepSpeed with error = (a\n"
    found = alone(run_of_text(said), "rank-died")
    assert found.title.startswith("The launcher could not run what it was to tune: The model is")
    assert found.advice[0].setting == "stderr.log in autotuning_results/profile_model_info"
    none = "No optimal DeepSpeed configuration found by autotuning.\n"
    found = alone(run_of_text(none), "rank-died")
    assert found.title.startswith("The launcher found nothing that runs to tune: No optimal")
    assert found.advice[0].setting == "stderr.log in the folders of autotuning_results"


def test_a_checkpoint_that_was_not_there_is_told_of_what_failed_behind_it() -> None:
    missed = (
        "[2026-03-02 10:12:15,570] [WARNING] [engine.py:2841:load_checkpoint] Unable to find "
        "latest file at /out/latest, if trying to load latest checkpoint please ensure this file "
        "exists or pass an explicit checkpoint tag when loading a checkpoint.\n"
    )
    failed = 'Traceback (most recent call last):\n  File "a.py", line 7, in <module>\n'
    failed += "AssertionError: no state\n"
    told = "DeepSpeed had found no checkpoint to load before it: there is no /out/latest."
    assert told in alone(run_of_text(missed, failed), "rank-died").summary
    assert told not in alone(run_of_text(failed, missed), "rank-died").summary
    step = "[2026-03-02 10:13:15,570] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, "
    step += "lr=[1e-05], mom=[(0.9, 0.95)]\n"
    assert told not in alone(run_of_text(missed, step, failed), "rank-died").summary


@pytest.mark.parametrize(
    ("text", "value", "advised"),
    [
        ("exits with return code = 1", 1.0, True),
        ("exitcode 2", 2.0, True),
        ("exits with return code = 247", 247.0, False),
        ("the script's words", 1.0, False),
    ],
)
def test_of_a_process_that_only_its_launcher_tells_of_its_own_output_is_asked_for(
    text: str, value: float, *, advised: bool
) -> None:
    found = alone(run_of([problem("exit", text, value=value)]), "rank-died")
    asked = [
        advice.setting for advice in found.advice if "--enable_each_rank_log" in advice.setting
    ]
    assert bool(asked) is advised


def test_where_lsf_names_the_file_of_stderr_that_is_to_be_read() -> None:
    ended = problem("exit", "exits with return code = 1", value=1.0)
    found = alone(run_of([ended], stderr_file="/data/run/train.err"), "rank-died")
    assert [advice.setting for advice in found.advice] == ["/data/run/train.err"]


def test_of_processes_that_were_all_told_to_end_the_first_one_is_not_called_the_cause() -> None:
    told = "exits with return code = -15"
    ended = [problem("exit", told, value=-15.0, rank=rank) for rank in (1, 0)]
    found = alone(run_of([*steps(4, WELL), *ended], world_size=2), "rank-died")
    assert found.title.startswith("Rank 1 was killed by SIGTERM after step 4")
    assert "which came first is not certain, hence medium confidence" in found.summary
    assert found.confidence == "medium"
