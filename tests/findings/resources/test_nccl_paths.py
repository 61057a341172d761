"""Data that NCCL moves through memory of the host is told where its lines show that."""

from __future__ import annotations

import pytest

from dsprof.events import Severity
from tests.findings.plants import WELL, Row, alone, config, quiet, rules, run_of, steps

SHARED = config("local_transport", "SHM/direct/direct")
OFF = config("gpudirect", "Disabled")
INFINIBAND = config("network", "IB")


def test_channels_of_shared_memory_alone_are_told() -> None:
    found = alone(run_of([SHARED, SHARED, *steps(10, WELL)]), "network-fallback")
    assert found.severity is Severity.WARNING
    assert found.title.startswith("NCCL moves data between the GPUs of a node through host memory")
    assert found.evidence[0].text == "a channel via SHM/direct/direct"
    assert found.advice[0].setting == "nvidia-smi topo -m, nvidia-smi topo -p2p r"


def test_a_direct_channel_beside_them_is_as_nodes_are_built() -> None:
    run = run_of([SHARED, config("local_transport", "P2P/CUMEM"), *steps(10, WELL)])
    assert "network-fallback" not in rules(run)


def test_direct_copies_that_were_switched_off_are_advised_first() -> None:
    run = run_of([SHARED, config("NCCL_P2P_DISABLE", "1"), *steps(10, WELL)])
    (advice,) = alone(run, "network-fallback").advice
    assert (advice.setting, advice.now) == ("NCCL_P2P_DISABLE", "1")


@pytest.mark.parametrize(
    "nodes",
    [
        [config("nccl_nodes", 2)],
        [config("nodes", 2)],
        [config("nccl_ranks", 16)],
        [config("nccl_ranks", 8), config("transport", "NET/IB/0")],
    ],
    ids=["NCCL says so", "the job says so", "more ranks than one has GPUs", "a channel leaves one"],
)
def test_adapters_that_do_not_reach_the_gpus_are_told_between_nodes(nodes: list[Row]) -> None:
    found = alone(run_of([OFF, OFF, INFINIBAND, *nodes, *steps(10, WELL)]), "network-fallback")
    assert found.title.endswith("through host memory: GPUDirect RDMA is off")


@pytest.mark.parametrize(
    "rows",
    [
        [OFF, INFINIBAND, config("nccl_nodes", 1)],
        [OFF, INFINIBAND, config("nccl_ranks", 8)],
        [OFF, config("gpudirect", "enabled"), INFINIBAND, config("nccl_nodes", 2)],
        [OFF, config("transport", "NET/IB/0/GDRDMA"), INFINIBAND, config("nccl_nodes", 2)],
    ],
    ids=["one node", "unknown", "one adapter does", "a channel does"],
)
def test_otherwise_they_are_not(rows: list[Row]) -> None:
    assert quiet(run_of([*rows, *steps(10, WELL)]), "network-fallback")


def test_a_communicator_tells_whether_sockets_are_between_nodes() -> None:
    sockets = [config("network", "Socket"), *steps(10, WELL)]
    assert quiet(run_of([config("nccl_nodes", 1), *sockets]), "network-fallback")
    found = alone(run_of([config("nccl_nodes", 2), *sockets]), "network-fallback")
    assert found.title.startswith("NCCL uses TCP sockets between nodes")
