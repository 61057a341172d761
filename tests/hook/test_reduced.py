"""DDP's reducer, whatever calls backward and whatever the model returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hook.jobs_of import run

LEAVES = ("a leaf", "leaves of two")
KINDS = LEAVES


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reduced")


@pytest.fixture(scope="module")
def results(out: Path) -> list[dict[str, Any]]:
    return run("reduced", out)


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_the_same_to_the_last_bit(results: list[dict[str, Any]], kind: str) -> None:
    for result in results:
        assert result[kind]["watched"]["losses"] == result[kind]["plain"]["losses"]


@pytest.mark.parametrize("kind", LEAVES)
def test_no_hook_stays_on_a_parameter_that_a_model_returns(
    results: list[dict[str, Any]], kind: str
) -> None:
    for result in results:
        assert result[kind]["watched"]["hooks"] == 0
