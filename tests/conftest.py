"""What several tests stand on: the sample logs, and the command line run for real."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import hypothesis
import pyarrow as pa
import pytest

import dsprof
from dsprof.run import strings
from tests import commands
from tests.loaded import sample

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "sample_logs"
BY_NAME = {name: path for path in SAMPLES.glob("*.log") for name in (path.name, path.stem)}
OF_JOBS = ("hook", "integrations")  #: folders of tests that train

#: For tests of what needs no pandas.
without_pandas = pytest.mark.skipif(
    int(pa.__version__.split(".")[0]) < 26, reason="this pyarrow imports pandas by itself"
)

Dsprof = Callable[..., "subprocess.CompletedProcess[str]"]

# Properties hold however busy the machine is: how long an example takes is no part of them.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_configure() -> None:
    """Collections of garbage are seldom: tests, and modules of tests, make much and few cycles.
    Strings are kept as commands keep them: see `tests.run.test_strings` for what others do.
    """
    gc.set_threshold(50_000, 10, 10)
    strings.of_python()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes more than a minute comes first, or one worker alone would be at it in the end.

    Then real jobs: of what stands first, nothing is stolen by workers who have done theirs, so one
    worker has all of these, and imports once what they need (see `tests.hook.jobs_of`).

    Tests of one log stand together, of whichever module: one worker has them, and reads and judges
    it once (see `tests.loaded`).
    """
    first: dict[Path, int] = {}
    place = {
        item: at if (log := log_of(item)) is None else first.setdefault(log, at)
        for at, item in enumerate(items)
    }
    items.sort(
        key=lambda item: (
            item.get_closest_marker("slow") is None,
            item.path.relative_to(ROOT / "tests").parts[0] not in OF_JOBS,
            place[item],
        )
    )


def pytest_collection_finish() -> None:
    """What is imported and collected stays to the end: no collection need look through it again."""
    gc.freeze()


def log_of(item: pytest.Item) -> Path | None:
    """The log that a test is asked for, where that is a parameter of it: a path, or the name of a
    sample."""
    told = item.callspec.params.values() if hasattr(item, "callspec") else ()
    named = (BY_NAME.get(one) if isinstance(one, str) else one for one in told)
    return next((one for one in named if isinstance(one, Path)), None)


@pytest.fixture
def sample_run() -> Callable[[str], dsprof.Run]:
    """Reads a sample log by its name; each is read once."""
    return sample


@pytest.fixture
def cli(tmp_path: Path) -> Dsprof:
    """Runs `dsprof ARGS...` as a user does: its own process, its own folder, 80 columns."""
    environment = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "FORCE_COLOR"}}
    environment |= {"COLUMNS": "80", "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path)}

    def run(
        *args: object,
        cwd: Path = tmp_path,
        input: str | None = None,  # noqa: A002 - as `subprocess.run` calls it
    ) -> subprocess.CompletedProcess[str]:
        return commands.run([*map(str, args)], cwd, environment, input)

    return run


@contextmanager
def heeding_sigint() -> Iterator[None]:
    """A shell's background jobs ignore the signal, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
