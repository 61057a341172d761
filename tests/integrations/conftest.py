"""Training with a trainer of others, in every kind that a test file names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.hook.jobs_of import run_each
from tests.hook.rows import Rows, folder


class Trained(NamedTuple):
    """What ranks say of a training without the callback and one with it, and what was recorded."""

    kind: str
    out: Path
    results: list[dict[str, Any]]
    ranks: list[Rows]


@pytest.fixture(scope="module")
def trainings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Trained]:
    """Of the JOB of a test file, which LIBRARY trains, all KINDS: what takes long is importing."""
    told = request.module
    out = tmp_path_factory.mktemp(told.JOB)
    results = run_each(told.JOB, out, told.KINDS, needs=told.LIBRARY)
    return {
        kind: Trained(kind, out / kind, results[kind], folder(out / kind / "run"))
        for kind in told.KINDS
    }
