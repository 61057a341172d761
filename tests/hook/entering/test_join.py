"""`dsprof attach --pid`: jobs that train already, and know nothing of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from dsprof.errors import DsprofError
from dsprof.hook.entering import injection, startup
from dsprof.hook.entering import join as joining
from dsprof.hook.entering.injection import run_lines, state_of
from dsprof.hook.entering.join import join
from dsprof.hook.entering.ranks import ranks_below
from dsprof.recording.launches import FOLDER
from tests.hook.jobs_of import ENVIRONMENT, JOBS, ROOT, forking, interpreter, run
from tests.hook.pythons import python
from tests.hook.rows import Rows, folder

LONG = 120.0  # seconds; what takes so long hangs
#: How many processes a script of each kind has, and the library that they are forked with.
RANKS = {"zero1": 2, "spawn": 1, "alone": 1}
NEEDS = {"zero1": "deepspeed", "spawn": "torch", "alone": "torch"}
PAUSE = 0.02  # seconds between two steps of a job
LOOP = "import sys, time\nprint(flush=True)\nwhile True: time.sleep(0.01)"

OWN_WAY = sys.version_info >= (3, 14)  # Python's own: no gdb

pytestmark = pytest.mark.skipif(
    shutil.which("gdb") is None and not OWN_WAY, reason="there is no gdb here"
)
by_gdb = pytest.mark.skipif(OWN_WAY, reason="from Python 3.14 on this needs no gdb")


class Job:
    """Two ranks that train until they are told that it is enough."""

    def __init__(self, out: Path, kind: str) -> None:
        self.out, self.kind = out, kind
        self._ended = False
        out.mkdir()
        self.begin()

    def begin(self) -> None:
        self._forking = forking(NEEDS[self.kind])
        self._forking.begin("joined", [(RANKS[self.kind], self.out, self.kind)])

    def is_over(self) -> bool:
        return self._forking.is_over()

    def ends(self) -> tuple[bool, str]:
        """Whether it ended well, and what it said on standard error."""
        return self._forking.ends_well(), self._forking.said()

    def pids(self) -> list[int]:
        """Of its script: the ranks, or what spawns them."""
        return [int(file.read_text(encoding="ascii")) for file in sorted(self.out.glob("main-*"))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it, where a test failed before it did."""
        if not self._ended:
            (self.out / "enough").touch()
            self.ends()

    def wait_for(self, *names: str) -> None:
        until = time.monotonic() + LONG
        while not all((self.out / name).exists() for name in names):
            assert time.monotonic() < until, names
            assert not self.is_over(), self.ends()[1][-3000:]
            time.sleep(0.05)

    def end(self) -> list[list[float]]:
        """The losses of each rank; none says anything, or was told anything for good."""
        (self.out / "enough").touch()
        self._ended = True
        well, said = self.ends()
        assert well, said[-3000:]
        assert "dsprof:" not in said
        files = sorted(self.out.glob("result-*.json"))
        results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        assert not any(result["told"] for result in results)
        return [result["losses"] for result in results]


class Launched(Job):
    """By torchrun."""

    def begin(self) -> None:
        launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
        command = [interpreter("torch"), *launcher, JOBS / "joined.py", self.out, self.kind]
        self._process = subprocess.Popen(
            list(map(str, command)),
            env=os.environ | ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def is_over(self) -> bool:
        return self._process.poll() is not None

    def ends(self) -> tuple[bool, str]:
        try:
            said = self._process.communicate(timeout=LONG)[1]
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        return self._process.returncode == 0, said

    def pids(self) -> list[int]:
        return [self._process.pid]


def trained(job: Job, steps: int) -> None:
    """Wait until so many steps of both ranks are recorded."""
    until = time.monotonic() + LONG
    while min(len(rank.steps) for rank in folder(job.out / "run")) < steps:
        assert time.monotonic() < until
        time.sleep(0.1)


def are_numbered_alike(ranks: list[Rows], losses: list[list[float]]) -> bool:
    """Whether a step has one number, whenever its rank was joined."""
    recorded = [next(row.value for row in rank.metrics if row.name == "loss") for rank in ranks]
    begun = [every.index(loss) for every, loss in zip(losses, recorded, strict=True)]
    return begun[0] - ranks[0].steps[0].step == begun[1] - ranks[1].steps[0].step


@pytest.fixture(scope="module", params=["zero1", "spawn"])
def joined(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Job]:
    """A job of which the numbers of its ranks were given while it trained, or that of what spawned
    them."""
    with Job(tmp_path_factory.mktemp(request.param) / "job", request.param) as job:
        job.wait_for("begun-0", "begun-1")
        assert join(job.pids(), job.out / "run")
        trained(job, 5)
        yield job


def test_both_ranks_of_a_running_job_are_recorded_until_told_otherwise(
    joined: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = folder(joined.out / "run")
    assert [rank.header["rank"] for rank in ranks] == [0, 1]
    assert ranks[0].header["launch"] == ranks[1].header["launch"] != ""
    for rank in ranks:
        steps = [row.step for row in rank.steps]
        assert steps == list(range(steps[0], steps[0] + len(steps)))
        assert {"forward", "backward"} <= {row.path for row in rank.spans}
        assert rank.collectives
    assert not join(joined.pids(), joined.out / "elsewhere")
    assert capsys.readouterr().err.count("it is already recorded, in") == 2
    assert not any(rank.ended for rank in folder(joined.out / "run"))
    assert join(joined.pids(), joined.out / "run", leave=True)
    assert "2 processes are no longer recorded" in capsys.readouterr().err
    assert all(rank.ended for rank in folder(joined.out / "run"))
    losses = joined.end()
    assert are_numbered_alike(ranks, losses)
    assert all(rank.steps[0].length > PAUSE * 1e9 for rank in ranks)  # the first is a whole one
    if joined.kind != "zero1":
        return
    (tmp_path / "enough").touch()
    for mine, its in zip(losses, run("joined", tmp_path, joined.kind), strict=True):
        many = min(len(mine), len(its["losses"]))
        assert many >= 20
        assert mine[:many] == its["losses"][:many]


def test_ranks_in_a_group_of_their_own_are_recorded_also_after_a_command_that_was_ended(
    tmp_path: Path,
) -> None:
    """It asked the first rank, which waits for the other since then."""
    with Launched(tmp_path / "job", "grouped") as job:
        job.wait_for("begun-0", "begun-1")
        first, *_ = ranks_below(*job.pids())
        answers = [tmp_path / name for name in ("first", "other")]
        lines = tmp_path / "lines.py"
        lines.write_text(startup.joining(job.out / "run", "before", answers[0], answers))
        run_lines(first, lines)
        while not answers[0].exists():
            time.sleep(0.05)
        assert answers[0].read_text() == ""
        assert join(job.pids(), job.out / "run")
        trained(job, 5)
        assert join(job.pids(), job.out / "run", leave=True)
        ranks = folder(job.out / "run")
        assert [rank.header["rank"] for rank in ranks] == [0, 1]
        assert are_numbered_alike(ranks, job.end())


def test_a_process_that_trains_alone_is_found_beside_those_that_make_its_batches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever of them is named."""
    with Job(tmp_path / "job", "alone") as job:
        job.wait_for("begun-0")
        (pid,) = job.pids()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        assert len(children) == 3  # one that is spawned, and its tracker of resources; and a fork
        for named in (pid, *map(int, children[-2:])):
            out = job.out / f"run-{named}"
            assert join([named], out)
            assert capsys.readouterr().err.startswith(f"dsprof: process {pid} is recorded: ")
            assert not list(out.glob(f"{FOLDER}/*"))  # what they told each other
            assert join([named], out, leave=True)
            capsys.readouterr()
        assert len(job.end()) == 1


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_each_python_answers_and_goes_on(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here it answers that it trains nothing."""
    with running(python(version), LOOP) as process:
        assert not join([process.pid], tmp_path / "run")
        assert f"process {process.pid}: it has not imported torch" in capsys.readouterr().err
        assert process.poll() is None
    assert not (tmp_path / "run").exists()  # it would be empty


@pytest.mark.parametrize("version", ["2.7", "3.8"])
def test_a_python_that_is_too_old_is_let_alone(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of Python 2 would end with an error of syntax."""
    with running(
        python(version),
        LOOP.replace("print(flush=True)", "sys.stdout.write(chr(10)); sys.stdout.flush()"),
    ) as process:
        assert not join([process.pid], tmp_path / "run")
        assert f"runs Python {version}, 3.9 or later is needed" in capsys.readouterr().err
        time.sleep(0.1)
        assert process.poll() is None


def test_a_python_2_whose_name_does_not_tell_is_let_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injection, "_OLDEST", injection._UNKNOWN)
    with running(
        python("2.7"),
        LOOP.replace("print(flush=True)", "sys.stdout.write(chr(10)); sys.stdout.flush()"),
    ) as process:
        assert not join([process.pid], tmp_path / "run")
        time.sleep(0.1)
        assert process.poll() is None


def test_a_process_that_is_in_c_code_answers_later_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "PATIENCE", 0.2)
    script = "import time\nprint(flush=True)\ntime.sleep(5)\ntime.sleep(60)"
    with running(sys.executable, script) as process:
        assert not join([process.pid], tmp_path / "run")
        assert "has not answered within 0.2 s: it is in a call of C code" in capsys.readouterr().err
        answers = tmp_path / "run" / ".attach"
        until = time.monotonic() + LONG
        while not list(answers.glob(f"*.{process.pid}")):
            assert time.monotonic() < until
            time.sleep(0.1)


def test_a_process_that_cannot_begin_right_now_is_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a hook of an optimizer, where PyTorch would raise if another one came."""
    answered = joining._answered
    told = iter([startup.NOT_NOW] * 2)
    monkeypatch.setattr(
        joining,
        "_answered",
        lambda asked: {rank: next(told, said) for rank, said in answered(asked).items()},
    )
    with running(sys.executable, LOOP) as process:
        assert not join([process.pid], tmp_path / "run")
    assert f"process {process.pid}: it has not imported torch" in capsys.readouterr().err


@contextmanager
def running(program: str, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of this script, which has printed a line."""
    with subprocess.Popen([program, "-c", script], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def goes_on(script: str, out: Path, **environment: str) -> str:
    """What a process of this script said on standard error, which was asked to be recorded."""
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert not join([process.pid], out)
        said = process.communicate("", timeout=LONG)[1]
        assert process.returncode == 0, said
        return said


#: Goes on until its input ends.
ALIVE = """
import select, sys
print(flush=True)
while not select.select([sys.stdin], [], [], 0.01)[0]: pass
"""


@pytest.mark.parametrize("name", ["compile", "exec", "open", "Exception"])
def test_names_of_the_script_do_not_meet_ours(name: str, tmp_path: Path) -> None:
    said = goes_on(f"{name} = None\n{ALIVE}", tmp_path / "run")
    assert said == "dsprof: nothing is recorded: it has not imported torch\n"


def test_a_folder_may_have_any_name_whatever_the_locale_of_the_process(tmp_path: Path) -> None:
    folder = tmp_path / "a \"b' \\ % $page \u00fc\n{c}"
    told = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    said = goes_on(ALIVE, folder, **told)
    assert said == "dsprof: nothing is recorded: it has not imported torch\n"
    assert not folder.exists()  # it would be empty


def test_a_process_that_cannot_answer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was deleted meanwhile, or the disk is full."""
    monkeypatch.setattr(joining, "PATIENCE", 0.0)

    def forgotten(asked: dict[joining.Rank, Path]) -> dict[joining.Rank, str | None]:
        shutil.rmtree(tmp_path / "run")
        return dict.fromkeys(asked)

    monkeypatch.setattr(joining, "_answered", forgotten)
    late = "import sys\nprint(flush=True)\nsys.stdin.read()\nfor _ in range(1000): pass"
    said = goes_on(late, tmp_path / "run")
    if OWN_WAY:  # it reads the lines when it runs them
        assert said.startswith("Can't open")
        assert "No such file" in said
    else:
        assert said == "dsprof: nothing is recorded: it has not imported torch\n"


def test_signals_that_arrive_meanwhile_do_no_harm(tmp_path: Path) -> None:
    script = f"import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)\n{LOOP}"
    with running(sys.executable, script) as process:
        storm = f"while kill -USR1 {process.pid}; do :; done"
        with subprocess.Popen(["sh", "-c", storm], stderr=subprocess.DEVNULL) as sending:
            join([process.pid], tmp_path / "run")
            sending.kill()
        assert process.poll() is None


@by_gdb
def test_ctrl_c_waits_until_gdb_is_done(tmp_path: Path) -> None:
    gdb = tmp_path / "gdb"
    gdb.write_text(f"#!/bin/sh\ntouch {tmp_path}/begun\nsleep 1\ntouch {tmp_path}/done\n")
    gdb.chmod(0o755)
    told = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    with running(sys.executable, LOOP) as process:
        words = ["-m", "dsprof", "attach", "--out", tmp_path / "run", "--pid", process.pid]
        command = [sys.executable, *map(str, words)]
        with subprocess.Popen(
            command, env=os.environ | told, start_new_session=True, stderr=subprocess.PIPE
        ) as asking:
            until = time.monotonic() + LONG
            while not (tmp_path / "begun").exists():
                assert time.monotonic() < until
                time.sleep(0.02)
            os.killpg(asking.pid, signal.SIGINT)
            asking.communicate(timeout=LONG)
    assert (tmp_path / "done").exists()


@by_gdb
def test_training_stands_still_for_one_gdb_and_not_for_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these waits until the other one has begun."""
    gdb, both = tmp_path / "gdb", f"[ $(ls {tmp_path} | grep -c begun) = 2 ]"
    wait = f"for n in $(seq 100); do {both} && touch {tmp_path}/met.$$ && exit; sleep 0.1; done"
    gdb.write_text(f"#!/bin/sh\ntouch {tmp_path}/begun.$$\n{wait}\n")
    gdb.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with running(sys.executable, LOOP) as one, running(sys.executable, LOOP) as other:
        join([one.pid, other.pid], tmp_path / "run")
    assert len(list(tmp_path.glob("met.*"))) == 2


def test_a_stopped_process_is_said_to_be_and_stays_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "PATIENCE", 0.2)
    with running(sys.executable, LOOP) as process:
        process.send_signal(signal.SIGSTOP)
        assert not join([process.pid], tmp_path / "run")
        assert "it is stopped. Once it goes on, it does what it" in capsys.readouterr().err
        assert state_of(process.pid) == "T"


def test_the_number_of_a_thread_stands_for_its_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = (
        "import threading, time\nthread = threading.Thread(target=time.sleep, args=(60,))\n"
        "thread.daemon = True\nthread.start()\nprint(thread.native_id, flush=True)\n"
        "while True: time.sleep(0.01)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert not join([int(process.stdout.readline())], tmp_path / "run")
        assert f"process {process.pid}: it has not imported torch" in capsys.readouterr().err
        process.kill()


def test_a_process_that_has_ended_is_said_to_have(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(DsprofError, match="has ended"):
            join([process.pid], tmp_path / "run")


def test_a_python_that_is_over_ends_as_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What C registered for the end of the process runs after Python is gone."""
    script = (
        "import ctypes\nadd = ctypes.CDLL(None).__cxa_atexit\n"
        "for name, seconds in (('sleep', 2), ('perror', None)):\n"
        "    add(getattr(ctypes.CDLL(None), name), ctypes.c_void_p(seconds), None)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.readline()
        assert not join([process.pid], tmp_path / "run")
        assert process.wait() == 0
    assert "is just starting or ending" in capsys.readouterr().err


@by_gdb
def test_a_process_that_is_traced_already_is_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(sys.executable, LOOP) as process:
        words = ["gdb", "-nx", "-batch", "-p", str(process.pid), "-ex", "shell sleep 60"]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as gdb:
            until = time.monotonic() + LONG
            while f"TracerPid:\t{gdb.pid}" not in Path(f"/proc/{process.pid}/status").read_text():
                assert time.monotonic() < until
                time.sleep(0.02)
            assert not join([process.pid], tmp_path / "run")
            gdb.kill()
        assert f"is traced by process {gdb.pid}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        (
            "import types; torch = types.ModuleType('torch')",
            "it is just importing torch: try again",
        ),
        (
            "torch = sys.modules['dsprof.hook.attach'] = type(sys)('a'); torch.__file__ = 'there'",
            "it has loaded another dsprof, which cannot do this: there",
        ),
    ],
    ids=["importing", "another dsprof"],
)
def test_what_cannot_be_recorded_now_says_so(
    modules: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = "import types\nspec = torch.__spec__ = types.SimpleNamespace(_initializing=True)\n"
    script = f"import sys\n{modules}\n{begun if 'types' in modules else ''}"
    goes_on(f"{script}sys.modules['torch'] = torch\n{ALIVE}", tmp_path / "run")
    assert said in capsys.readouterr().err


def test_an_earlier_recording_is_not_taken_for_one_that_is_under_way(tmp_path: Path) -> None:
    rank = joining.Rank(os.getpid(), 42)
    recording = tmp_path / "rank-00000.42.dsprof"
    recording.touch()
    (tmp_path / "rank-00000.421.dsprof").touch()
    assert not joining._is_recorded(rank, tmp_path)
    with recording.open("rb"):
        assert joining._is_recorded(rank, tmp_path)


def test_a_join_in_a_hook_of_an_optimizer_is_told_to_try_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch would raise if its hooks came and went while it calls them."""
    monkeypatch.setattr(joining, "_TIMES", 1)  # it would answer the same each time
    script = (
        "import sys, types\nname = 'torch.optim.optimizer'\n"
        "torch = sys.modules['torch'] = types.ModuleType('torch')\n"
        "optimizer = sys.modules[name] = types.ModuleType(name)\n"
        "def profile_hook_step(func):\n"
        "    def wrapper(): func()\n"
        "    return wrapper\n"
        "optimizer.Optimizer = types.SimpleNamespace(profile_hook_step=profile_hook_step)\n"
        "def hook():\n    " + ALIVE.strip().replace("\n", "\n    ") + "\n"
        "def calling(func): return hook()\n"
        "class Step:\n    def __call__(self): hook()\n"
        "profile_hook_step(Step())()"
    )
    said = goes_on(script, tmp_path / "run")
    assert "cannot begin in a hook of an optimizer" in said
    assert "it could not begin right now" in capsys.readouterr().err


@by_gdb
def test_a_gdb_that_hangs_is_ended_in_good_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gdb = tmp_path / "gdb"
    gdb.write_text(f"#!/bin/sh\ntrap 'touch {tmp_path}/told; exit' TERM\nwhile :; do :; done\n")
    gdb.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(injection, "_GDB", 1.0)
    assert goes_on(ALIVE, tmp_path / "run") == ""
    assert "did not stop within 1 s (try again)" in capsys.readouterr().err
    assert (tmp_path / "told").exists()


def test_what_is_no_python_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not join([process.pid], tmp_path / "run")
        assert "is no Python process" in capsys.readouterr().err
        assert process.poll() is None
        process.kill()


def test_a_python_that_was_told_to_run_no_lines_of_others_runs_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_DISABLE_REMOTE_DEBUG", "1")
    with running(python("3.14"), LOOP) as process:
        assert not join([process.pid], tmp_path / "run")
        assert process.poll() is None
    said = capsys.readouterr().err
    assert "runs no lines of others, as it was told" in said
    assert "start it without PYTHON_DISABLE_REMOTE_DEBUG" in said


def test_a_number_of_no_process_is_told(tmp_path: Path) -> None:
    with pytest.raises(DsprofError, match="there is no such process on this host"):
        join([(1 << 22) + 1], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_gdb_it_is_said_that_an_older_python_needs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with running(python("3.12"), LOOP) as process:
        assert not join([process.pid], tmp_path / "run")
    assert "needs gdb for a Python before 3.14, and there is none" in capsys.readouterr().err


def test_ctrl_c_in_the_middle_ends_neither_the_call_nor_training(tmp_path: Path) -> None:
    """A gdb that was interrupted in its call would leave the process there."""
    with running(python("3.12"), LOOP) as process:
        for after in (0.05, 0.15, 0.25, 0.4):
            command = [sys.executable, "-m", "dsprof", "attach", "--pid", str(process.pid)]
            asking = subprocess.Popen(
                [*command, "--out", str(tmp_path / "run")],
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            while not list(tmp_path.glob("run/.attach/*.py")):
                assert asking.poll() is None
                time.sleep(0.005)
            time.sleep(after)
            os.killpg(asking.pid, signal.SIGINT)
            asking.wait(LONG)
            for file in tmp_path.glob("run/.attach/*"):
                file.unlink(missing_ok=True)
            time.sleep(0.05)
            assert process.poll() is None
            assert state_of(process.pid) in {"R", "S"}  # neither stopped nor traced
