"""A host that goes by several names is one."""

from __future__ import annotations

import pytest

from dsprof.run import from_events
from tests.loaded import run_of_text
from tests.run.run_rows import events

STEP = "{host}: [2024-05-06 10:00:0{step},000] [INFO] [logging.py:96:log_dist] [Rank {rank}] "
STEP += "step={step}, skipped=0\n"
DIED = """{host}: Root Cause (first observed failure):
{host}: [0]:
{host}:   host      : {own}
{host}:   rank      : {rank} (local_rank: 0)
{host}:   exitcode  : -9 (pid: 4134)  (SIGKILL)
"""
SOCKETS = "{host}: w:4101:4388 [1] NCCL INFO Using network Socket\n"


def steps(host: str, *ranks: int) -> str:
    return "".join(STEP.format(host=host, step=n, rank=rank) for n in (1, 2) for rank in ranks)


@pytest.mark.parametrize("prefix", ["10.2.0.14", "localhost", "w3", "node-1"])
def test_a_host_that_the_launcher_calls_otherwise_than_itself_is_one(prefix: str) -> None:
    died = DIED.format(host=prefix, own="w3.tail1234.ts.net", rank=1)
    run = run_of_text(steps(prefix, 0, 1), SOCKETS.format(host=prefix), died)
    assert run.meta["hosts"] == ["w3.tail1234.ts.net"]
    assert "network-fallback" not in [finding.rule for finding in run.findings]


def test_each_of_two_hosts_keeps_one_name() -> None:
    died = DIED.format(host="10.2.0.15", own="w4.cluster", rank=2)
    run = run_of_text(steps("10.2.0.14", 0, 1), steps("10.2.0.15", 2, 3), died)
    assert run.meta["hosts"] == ["10.2.0.14", "w4.cluster"]


def test_names_of_which_nothing_shows_that_they_are_of_one_host_are_several() -> None:
    other = DIED.format(host="10.2.0.14", own="w4", rank=7)
    assert len(run_of_text(steps("10.2.0.14", 0, 1), other).meta["hosts"]) == 2
    names = ("w1", "w1.north", "w1.south", "10", "10.2.0.14")
    told = events({"kind": "metric", "name": "loss", "step": 1, "host": name} for name in names)
    assert from_events(told).meta["hosts"] == sorted(names)


def test_a_host_whose_ranks_are_recorded_is_called_as_there() -> None:
    common = {"kind": "metric", "name": "loss", "step": 1, "rank": 0}
    rows = [
        common | {"host": "w3", "source": "rank00000.dsprof"},
        common | {"host": "10.2.0.14", "source": "run.log"},
    ]
    assert from_events(events(rows)).meta["hosts"] == ["w3"]
    other = common | {"host": "10.2.0.15", "source": "run.log"}  # which of the two it is, is open
    assert len(from_events(events([*rows, other])).meta["hosts"]) == 3


FULL = "{host}: {own}:41:43 [1] alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'\n"


def test_every_view_calls_a_host_by_the_name_that_nccl_has_for_a_launcher_s_localhost() -> None:
    run = run_of_text(
        steps("localhost", 0), steps("10.2.0.14", 1), FULL.format(host="localhost", own="w7")
    )
    assert run.meta["hosts"] == ["10.2.0.14", "w7"]
    assert run.problems["host"].tolist() == ["w7"]
    assert run.findings[0].title.startswith("A process on w7 ")
    assert set(run.events.loc[run.events["rank"] == 0, "host"]) == {"w7"}
    assert "localhost" in set(run.recorded["host"])


def test_a_localhost_of_which_nccl_has_two_names_stays_one() -> None:
    both = (FULL.format(host="localhost", own=own) for own in ("w7", "w8"))
    assert run_of_text(steps("localhost", 0), *both).meta["hosts"] == ["localhost"]


def test_hosts_that_a_launcher_lists_are_known_where_no_line_is_of_one() -> None:
    listed = "[INFO] [runner.py:403:main] Running on the following workers: ddp-0.svc,ddp-1.svc\n"
    assert run_of_text(listed).meta["hosts"] == ["ddp-0.svc", "ddp-1.svc"]
    assert run_of_text(listed, steps("10.2.0.14", 0, 1)).meta["hosts"] == ["10.2.0.14"]
