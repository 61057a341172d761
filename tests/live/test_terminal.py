"""`dsprof live` in a terminal beside real jobs: keys go in, what the screen shows comes out."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.jobs_of import PATHS, interpreter
from tests.live.jobs import ROOT
from tests.live.test_log import step_line

PATIENCE = 120.0  # seconds; how soon things show is measured by the benchmark


class Terminal:
    """A tmux server of its own with one pane of 80 columns and 24 lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._socket = str(folder / "tmux")

    def tmux(self, *args: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *args]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def start(self, command: str) -> None:
        self.tmux("new-session", "-d", "-x", "80", "-y", "24", "-s", "live",
                  f"cd {self.folder}; export PYTHONPATH={ROOT}; {command}; sleep 300")  # fmt: skip

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", "live", *keys)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", "live")

    def shows(self, pattern: str) -> str:
        """Wait until the screen shows it; the screen."""
        until = time.monotonic() + PATIENCE
        while not re.search(pattern, seen := self.screen()):
            assert time.monotonic() < until, seen
            time.sleep(0.2)
        return seen


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("no tmux here")
    shown = Terminal(tmp_path)
    yield shown
    subprocess.run(["tmux", "-S", str(tmp_path / "tmux"), "kill-server"], check=False)


class RealJob:
    """DDP on two CPU ranks, recorded by `dsprof attach`; `plan` says what is wrong with it."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder, self._python = folder, python
        self._process: subprocess.Popen[bytes] | None = None

    def plan(self, words: str) -> None:
        (self.folder / "plan").write_text(words, encoding="utf-8")

    def start(self) -> None:
        with (self.folder / "job.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._python, "-m", "dsprof.hook.entering.launch", self.folder / "run",
                 self._python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node",
                 "2", ROOT / "tests/live/train.py", self.folder],
                env=os.environ | {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"},
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill(self, rank: int) -> None:
        (file,) = (self.folder / "run").glob(f"rank-0000{rank}.*.dsprof")
        os.kill(int(file.name.split(".")[1]), signal.SIGKILL)

    def end(self) -> None:
        (self.folder / "done").touch()
        if self._process is None:
            return
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RealJob]:
    started = RealJob(tmp_path, interpreter("torch"))
    yield started
    started.end()


def watch(*args: object) -> str:
    return " ".join([sys.executable, "-m", "dsprof", "live", *map(str, args)])


@pytest.mark.slow
def test_what_goes_wrong_with_a_real_job_is_seen_and_reported(
    terminal: Terminal, job: RealJob
) -> None:
    """One job, one plan after the other: starting it takes longer than all the rest."""
    terminal.start(watch("run", "job.log"))
    terminal.shows(r"WAITING[\s\S]*waiting for run, job.log to appear")
    job.plan("bound")
    job.start()
    terminal.shows(r"RUNNING · step [\d,]+ ")
    # Where other processes keep one rank from its core, the others wait for that.
    terminal.shows(r"(critical|warning) .*(of a step is communication|Rank \d waits for rank)")
    terminal.press("e")
    terminal.shows("report written")
    (page,) = terminal.folder.glob("dsprof-live-*.html")
    assert " recorded steps, " in page.read_text(encoding="utf-8")
    job.plan("slow grow")
    terminal.shows(r"critical .*Rank 0 waits for rank 1")
    terminal.shows(r"(info|warning) .*memory grows by")  # a warning where it is 1 GiB, in a while
    terminal.press("2")
    terminal.shows(r"rank 0 waits for rank 1: \d")
    job.kill(1)
    terminal.shows(r"DIED[\s\S]*rank 1 was killed by SIGKILL after step")
    terminal.press("5")
    terminal.shows(r"first +\S[^\n]*  +1 ")
    terminal.press("q")
    terminal.shows(r"\$|^\s*$")


def test_a_log_fed_line_by_line_is_followed(terminal: Terminal, tmp_path: Path) -> None:
    lines = (ROOT / "sample_logs/straggler_0.19.8.log").read_bytes().splitlines(keepends=True)
    terminal.start(watch("run.log"))
    terminal.shows("waiting for run.log to appear")
    with (tmp_path / "run.log").open("ab", buffering=0) as log:
        for number, line in enumerate(lines):
            log.write(line)
            if number == 250:
                terminal.shows(r"RUNNING · step [23]\d")
    terminal.shows(r"step 40[\s\S]*85 % of a step is communication")
    terminal.press("/")
    terminal.press("exits", "Enter")
    terminal.shows(r"Process 11737 exits")


def test_a_pipe_is_followed_and_keys_still_come(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "head").write_bytes(b"".join(map(step_line, range(1, 31))))
    terminal.start(f"(cat head; sleep 2; cat more 2>/dev/null; sleep 100) | {watch('-')}")
    terminal.shows("step 30")
    terminal.press("?")
    terminal.shows("write the HTML report")
    terminal.press("Escape")
    terminal.shows("1 Overview")  # a key right behind an escape would be alt and that key
    terminal.press("6")
    terminal.shows("steps: 30 loss")


def test_hostile_text_reaches_no_terminal_raw(terminal: Terminal, tmp_path: Path) -> None:
    evil = b"\x1b]0;stolen\x07\x1b[2J\x1b[H\x1b[31mloud [bold]markup[/bold]\n" + b"y" * (2 << 20)
    (tmp_path / "run.log").write_bytes(step_line(1) + evil + b"\n" + step_line(2))
    terminal.start(watch("run.log"))
    terminal.shows("step 2")
    terminal.press("6")
    terminal.shows(r"loud \[bold\]markup\[/bold\]")
    assert "stolen" not in terminal.tmux("display-message", "-p", "-t", "live", "#{pane_title}")


def test_a_terminal_is_given_back_where_the_watch_is_asked_to_end(
    terminal: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "run.log").write_bytes(step_line(1))
    terminal.start(f"echo before; sh -c 'echo $$ > pid; exec {watch('run.log')}'; echo left $?")
    terminal.shows("step 1")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
    assert "before" in terminal.shows("left 143")
    assert terminal.tmux("display-message", "-p", "-t", "live", "#{mouse_any_flag}") == "0\n"


def test_an_interrupt_from_the_keyboard_leaves(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes(step_line(1))
    terminal.start(f"{watch('run.log')}; echo left $?")
    terminal.shows("step 1")
    terminal.press("C-c")
    terminal.shows("left 0")
