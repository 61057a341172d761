"""The job of a test file: JOB is its name and what it is told. It runs once, on two ranks, for
all tests of the file, for starting two ranks costs more than they train here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsprof.recording import Writer
from tests.hook.jobs_of import run
from tests.hook.rows import Rows, folder
from tests.hook.seen import Job


@pytest.fixture(scope="module")
def out(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the job leaves what is recorded of it."""
    return tmp_path_factory.mktemp(request.module.JOB[0])


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, out: Path) -> list[dict[str, Any]]:
    """What the job says of itself, by rank."""
    name, *told = request.module.JOB
    return run(name, out, *told)


@pytest.fixture(autouse=True)
def can_train(request: pytest.FixtureRequest) -> None:
    """What this PyTorch cannot do its job says, in the place of results."""
    kind = getattr(request.node, "callspec", None) and request.node.callspec.params.get("kind")
    if "results" in request.fixturenames and kind:
        said = request.getfixturevalue("results")
        of_kind = said[0].get(kind) if isinstance(said, list) else None
        if isinstance(of_kind, str):
            pytest.skip(of_kind)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """Of what is recorded here, and read again."""
    writer = Writer.create(tmp_path / "run", {"rank": 0})
    yield writer
    writer.close()


@pytest.fixture
def job(writer: Writer) -> Iterator[Job]:
    """A thread whose stack is known."""
    job = Job(writer)
    yield job
    job.end()


@pytest.fixture
def rows(results: list[dict[str, Any]], out: Path, kind: str) -> list[Rows]:
    """What was recorded of one kind of training, by rank."""
    assert len(results) == 2
    return folder(out / kind)
