"""Of everything that fails when a rank dies, the first cause is named, not its victims."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from dsprof.run import from_events
from tests.run.run_rows import events, grammar_with

START = pd.Timestamp("2024-01-01")


def problem(name: str, text: str = "", *, at: float | None = None, **more: Any) -> dict[str, Any]:
    when = {} if at is None else {"at": START + pd.Timedelta(seconds=at)}
    return {"kind": "problem", "name": name, "text": text} | when | more


def causes(*rows: dict[str, Any]) -> list[int]:
    """Which of `rows` are root causes."""
    found = from_events(events(rows), grammar=grammar_with()).problems
    return [int(line) - 1 for line in found.loc[found["root_cause"], "line"]]


def test_an_out_of_memory_beats_the_connections_it_breaks() -> None:
    assert causes(
        problem("connection", "Connection closed by peer"),
        problem("oom", "CUDA out of memory", rank=1),
        problem("killed-by-launcher"),
        problem("exit", value=1),
    ) == [1]


def test_the_earliest_of_several_faults_counts_even_if_printed_later() -> None:
    assert causes(
        problem("exception", "KeyError: 'b'", at=20.0),
        problem("exception", "KeyError: 'a'", at=3.0),
    ) == [1]


def test_an_exception_about_a_peer_is_a_victim() -> None:
    assert causes(
        problem("exception", "RuntimeError: [pair.cc:553] Connection closed by peer", rank=0),
        problem("exception", "ValueError: bad batch", rank=1),
    ) == [1]


def test_the_rank_that_the_launcher_names_is_believed() -> None:
    assert causes(
        problem("exception", "ValueError: a", rank=0),
        problem("exception", "ValueError: b", rank=1),
        problem("root-cause", "exitcode 1", rank=1),
    ) == [1]


def test_a_fault_long_before_the_watchdog_is_the_cause() -> None:
    assert causes(
        problem("exception", "FileNotFoundError", at=0.0, host="b"),
        problem("watchdog", at=600.0, rank=3, value=880),
    ) == [0]


def test_the_rank_that_enqueued_least_is_the_one_waited_for() -> None:
    assert causes(*[problem("watchdog", rank=r, value=v) for r, v in ((0, 9), (1, 7), (2, 9))]) == [
        1
    ]


def test_a_kill_signal_is_a_cause_and_sigterm_is_not() -> None:
    assert causes(problem("exit", value=-15), problem("exit", value=-9)) == [1]
    assert causes(problem("exit", value=-15), problem("killed-by-launcher")) == []


def test_each_restart_has_a_failure_of_its_own() -> None:
    assert causes(problem("oom"), problem("restart"), problem("exit", value=1)) == [0, 2]
    assert causes(problem("oom"), problem("oom", segment=1)) == [0, 1]


def test_warnings_alone_have_no_root_cause() -> None:
    assert causes(problem("network-fallback"), problem("prefetch-broken")) == []


@pytest.mark.parametrize(
    ("name", "severity"), [("oom", "critical"), ("network-fallback", "warning")]
)
def test_severity_follows_the_kind_unless_the_dialect_says(name: str, severity: str) -> None:
    row = problem(name, pattern="x.y")
    assert from_events(events([row]), grammar=grammar_with()).problems["severity"][0] == severity
    own: Any = SimpleNamespace(timers={}, patterns=(SimpleNamespace(id="x.y", severity="info"),))
    assert from_events(events([row]), grammar=own).problems["severity"][0] == "info"
