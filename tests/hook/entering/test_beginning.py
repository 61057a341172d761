"""What is told of ranks that have not begun to train."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsprof.hook.entering import beginning
from dsprof.hook.entering.beginning import Beginning, begin, rank_of_its_own
from dsprof.hook.looking import looker
from dsprof.hook.looking.stacks import Call
from dsprof.recording.beginnings import begins
from dsprof.recording.launches import FOLDER
from dsprof.recording.unbegun import said_of
from tests.hook.jobs_of import JOBS, PATHS, interpreter
from tests.recording.test_beginnings import stands as stands_at

EVERY = 0.5  # seconds
WAIT, LOAD = Call("wait", "lib/io.py", 0, is_own=False), Call("load", "./a.py", 3, is_own=True)
RANK = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}
ASK = "from dsprof.hook.entering.beginning import rank_of_its_own as rank; print(rank())"


class Stands:
    """A rank that stands in `calls`, by a clock that is moved by hand."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls, self.sees, self.folder = 0.0, [WAIT, LOAD], True, folder
        self.trains = False
        (folder / FOLDER).mkdir()
        monkeypatch.setattr(beginning, "perf_counter", lambda: self.now)
        monkeypatch.setattr(beginning, "seen_at", lambda *_: self.calls if self.sees else None)
        self.beginning = Beginning(folder, 3, lambda: self.trains)

    def look(self, seconds: float, *, sees: Callable[[int], bool] = lambda _: True) -> bool:
        goes_on = True
        for n in range(round(seconds / EVERY)):
            self.now += EVERY
            self.sees = sees(n)
            self.beginning._look(0.0)
            goes_on = self.beginning._write()
        return goes_on

    def told(self) -> list[tuple[int, str, float]]:
        return [(one.rank, one.stack, one.seconds) for one in begins(self.folder)]


@pytest.fixture
def stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stands:
    return Stands(tmp_path, monkeypatch)


def test_what_a_rank_stands_in_is_told_every_ten_seconds_and_later_less_often(
    stands: Stands,
) -> None:
    stands.look(9)
    assert stands.told() == []
    told = []
    for _ in range(200):
        stands.look(1)
        told += stands.told()
    assert {stack for _, stack, _ in told} == {"wait (lib/io.py) < load (./a.py:3)"}
    times = list(dict.fromkeys(seconds for *_, seconds in told))
    assert times == [*range(10, 130, 10), 150, 180]


def test_it_is_still_told_after_an_hour(stands: Stands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are fewer then, and must suffice."""

    class GoesOn:
        def acquire(self, _: bool, timeout: float) -> bool:
            stands.now += timeout
            return stands.now > 3_600

        def release(self) -> None:
            pass

    monkeypatch.setattr(looker, "perf_counter", lambda: stands.now)
    monkeypatch.setattr(stands.beginning._looker, "_goes_on", GoesOn())
    stands.beginning._looker._loop()
    ((_, stack, seconds),) = stands.told()
    assert stack
    assert 3_550 < seconds < 3_600


def test_where_it_stands_elsewhere_that_is_told_and_for_how_long(stands: Stands) -> None:
    stands.look(30)
    stands.calls = [LOAD]
    stands.look(22)
    assert stands.told() == [(3, "load (./a.py:3)", 20.0)]


def test_once_nobody_sees_where_it_is_nothing_is_told_of_it(stands: Stands) -> None:
    stands.look(30)
    assert stands.told() != []
    stands.look(12, sees=lambda n: n % 4 == 0)
    assert stands.told() == []


def test_nothing_is_left_once_training_is_found(stands: Stands) -> None:
    stands.look(30)
    stands.beginning.stop()
    assert list((stands.folder / FOLDER).iterdir()) == []
    stands.beginning.stop()


def test_nobody_looks_on_at_a_rank_that_trains_although_nothing_records_it(stands: Stands) -> None:
    assert stands.look(30)
    stands.trains = True
    assert not stands.look(1)
    assert stands.told() == []


def test_what_a_rank_told_in_an_attempt_before_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSPROF_LAUNCH", "mine")
    stands_at(tmp_path, 3, launch="mine")
    stands_at(tmp_path, 4, launch="mine")
    begun = Beginning(tmp_path, 3, lambda: False)
    begun.start()
    assert [one.rank for one in begins(tmp_path)] == [4]
    begun.stop()


def test_a_file_server_that_is_gone_harms_no_end(stands: Stands) -> None:
    shutil.rmtree(stands.folder / FOLDER)
    (stands.folder / FOLDER).write_text("", "utf-8")
    stands.beginning.stop()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="warns of threads")
def test_a_forked_process_leaves_what_its_parent_tells(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    begun = Beginning(tmp_path, 3, lambda: False)
    begun.start()
    try:
        begun._file.write_text("{}", "utf-8")
        child = os.fork()
        if not child:
            import atexit
            import weakref

            vars(weakref.finalize)["_registry"].clear()  # or folders of other tests are removed
            since = time.perf_counter()
            atexit._run_exitfuncs()
            os._exit(int(time.perf_counter() - since > 0.4))  # as if it waited for a thread
        assert os.waitpid(child, 0)[1] == 0
        assert begun._file.exists()
    finally:
        begun.stop()


def test_a_process_that_a_rank_starts_is_none(tmp_path: Path) -> None:
    """It inherits the number: workers, compilers, what prepares data, also where the rank ends."""
    environment = {**os.environ, "PYTHONPATH": PATHS, **RANK}
    (tmp_path / "helper.py").write_text(ASK, "utf-8")
    helper = str(tmp_path / "helper.py")
    again = f"import subprocess, sys; subprocess.run([sys.executable, {helper!r}])"
    command = [sys.executable, "-c", f"{ASK}\n{again}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == ["5", "None"]


@pytest.mark.parametrize(
    ("more", "rank"),
    [({}, 5), ({"RANK": "first"}, None), ({"RANK": "8"}, None), ({"LOCAL_RANK": ""}, None),
     ({"DSPROF_RANK_OF": "1"}, None)],
)  # fmt: skip
def test_a_rank_has_a_number_of_its_own_and_of_its_host(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, str], rank: int | None
) -> None:
    """A launcher may have been given one of its node."""
    for name, word in ({"DSPROF_RANK_OF": str(os.getpid())} | RANK | more).items():
        monkeypatch.setenv(name, word)
    assert rank_of_its_own() == rank


def test_only_what_dsprof_attach_has_started_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, word in ({"DSPROF_RANK_OF": str(os.getpid())} | RANK).items():
        monkeypatch.setenv(name, word)
    (tmp_path / FOLDER).mkdir()
    monkeypatch.setenv("PYTHONPATH", "")
    assert begin(tmp_path, lambda: False) is None  # it was joined
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / FOLDER}:/elsewhere")
    assert begin(tmp_path / "absent", lambda: False) is None
    begun = begin(tmp_path, lambda: False)
    assert begun is not None
    begun.stop()
    monkeypatch.setenv("DSPROF_LOOKS", "0")
    assert begin(tmp_path, lambda: False) is None


def test_of_a_job_that_never_began_to_train_it_is_told_where_it_stood(tmp_path: Path) -> None:
    given = [f"{name}={word}" for name, word in RANK.items()]
    rank = ["env", *given, interpreter("torch"), str(JOBS / "begins.py")]
    command = [sys.executable, "-m", "dsprof.hook.entering.launch", str(tmp_path), *rank]
    environment = {**os.environ, "PYTHONPATH": PATHS}
    job = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 100
    while not said_of(tmp_path) and job.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    job.terminate()
    said = job.communicate(timeout=60)[1]
    assert "nothing was recorded. Rank 5 stood in waits (begins.py:15), for " in said
