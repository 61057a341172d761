"""Lightning's own Trainer: on one process, which calls no forward, and under DDP."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.hook.jobs_of import run
from tests.hook.rows import Rows, folder

STEPS, ACCUMULATION = 6, 2
RANKS = {"auto": 1, "ddp": 2}


@pytest.fixture(scope="module", params=RANKS)
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory, strategy: str) -> Path:
    return tmp_path_factory.mktemp(strategy)


@pytest.fixture(scope="module")
def results(out: Path, strategy: str) -> list[dict[str, Any]]:
    return run("lightning_fit", out, strategy, ranks=RANKS[strategy], needs="lightning")


@pytest.fixture
def rows(results: list[dict[str, Any]], out: Path) -> list[Rows]:
    ranks = folder(out / "run")
    assert len(ranks) == len(results)
    return ranks


def test_weights_are_the_same_to_the_last_bit(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert result["watched"] == result["plain"]


def test_every_step_and_micro_batch_is_recorded(rows: list[Rows]) -> None:
    for rank in rows:
        assert [row.step for row in rank.steps] == list(range(1, STEPS + 1))
        paths = Counter(row.path for row in rank.spans)
        assert paths["forward"] == paths["backward"] == STEPS * ACCUMULATION
        assert rank.ended


def test_the_optimizers_phase_holds_no_forward_though_lightning_calls_it_inside(
    rows: list[Rows],
) -> None:
    for rank in rows:
        optimizer = [
            (row.begin, row.begin + row.length) for row in rank.spans if row.path == "step"
        ]
        for row in rank.spans:
            if row.path in {"forward", "backward"}:
                assert all(row.begin >= end or row.begin < begin for begin, end in optimizer)


def test_communication_is_seen_where_there_is_any(rows: list[Rows], strategy: str) -> None:
    for rank in rows:
        reduced = [row for row in rank.collectives if row.op == "all_reduce"]
        assert len(reduced) == (STEPS if strategy == "ddp" else 0)
