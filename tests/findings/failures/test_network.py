"""Sockets between nodes and broken links are told where NCCL shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.events import Severity
from dsprof.run import load
from tests.findings.failures.test_deaths import GONE
from tests.findings.plants import (
    WELL,
    Row,
    alone,
    config,
    metric,
    problem,
    quiet,
    rules,
    run_of,
    silent,
    steps,
    why,
)


def test_a_variable_that_the_launcher_exports_is_known() -> None:
    command = "pdsh -w a,b export NCCL_DEBUG=INFO; export NCCL_IB_DISABLE=1;  cd /x; python"
    rows = [config("network", "Socket"), config("launch_command", command), *steps(10, WELL)]
    advice = {a.setting: a.now for a in alone(run_of(rows, nodes=2), "network-fallback").advice}
    assert advice == {"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": ""}


def test_sockets_between_nodes_are_a_fallback() -> None:
    run = run_of([config("network", "Socket"), *steps(10, WELL)], nodes=2)
    found = alone(run, "network-fallback")
    assert found.severity is Severity.CRITICAL
    assert found.evidence[0].text == "Using network Socket"


def test_sockets_on_one_node_are_no_finding() -> None:
    run = run_of([config("network", "Socket"), *steps(10, WELL)], nodes=1)
    assert quiet(run, "network-fallback")


def test_infiniband_is_no_finding() -> None:
    assert quiet(run_of([config("network", "IB"), *steps(10, WELL)], nodes=4), "network-fallback")


def test_sockets_of_an_unknown_number_of_nodes_are_not_judged() -> None:
    run = run_of([config("network", "Socket"), *steps(10, WELL)])
    assert "unknown" in (why(run, "network-fallback") or "")


@pytest.mark.parametrize("nodes", [[], [config("nodes", 1)]])
def test_a_missing_adapter_alone_is_no_proof_of_sockets_between_nodes(nodes: list[Row]) -> None:
    lost = problem("network-fallback", "NET/IB : No device found.", host="w0")
    run = run_of([*nodes, lost, config("network", "Socket"), *steps(10, WELL)])
    assert "network-fallback" not in rules(run)
    assert (why(run, "network-fallback") is None) is bool(nodes)
    assert alone(run_of([lost, *steps(10, WELL)], nodes=2), "network-fallback")


@pytest.mark.parametrize(("named", "told"), [("mlx5_0:1,mlx5_1:1", True), ("^mlx5_4", False)])
def test_adapters_that_the_job_names_and_nccl_does_not_find_are_told(
    named: str, *, told: bool
) -> None:
    lost = problem("network-fallback", "NET/IB : No device found.", host="w0")
    rows = [config("NCCL_IB_HCA", named), lost, config("network", "Socket"), *steps(10, WELL)]
    run = run_of(rows)
    assert ("network-fallback" in rules(run)) is told
    if told:
        found = alone(run, "network-fallback")
        assert found.title == "NCCL finds none of the InfiniBand adapters that NCCL_IB_HCA names"
        assert found.confidence == "medium"
    assert silent(run_of([*rows, config("nodes", 1)]), "network-fallback")


def test_a_network_that_is_no_socket_is_used_whatever_was_looked_for_first() -> None:
    lost = problem("network-fallback", "NET/IB : No device found.", host="w0")
    run = run_of([lost, config("network", "AWS Libfabric"), *steps(10, WELL)], nodes=2)
    assert quiet(run, "network-fallback")


def test_a_channel_over_sockets_is_proof_of_several_nodes(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    said = "w0:12:30 [0] NCCL INFO "
    log.write_text(
        f"{said}Using network Socket\n"
        f"{said}Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
        f"{said}Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n"
    )
    found = alone(load(log), "network-fallback")
    assert [(proof.text, proof.line) for proof in found.evidence] == [
        ("Using network Socket", 1),
        ("a channel via NET/Socket/0", 3),
    ]


def test_a_queue_that_an_earlier_error_closed_is_not_called_a_broken_link(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    flushed = "NET/IB: Got completion from peer 10.0.0.7<41322> with status=5 opcode=0 len=0\n"
    log.write_text("w0:288:1307 [4] ib_plugin.c:1673 NCCL WARN " + flushed)
    found = alone(load(log), "network-fallback")
    assert found.title == "NCCL reports a queue that an earlier error had closed"
    log.write_text(
        log.read_text() + "ncclRemoteError: A call failed possibly due to a network error"
    )
    died = alone(load(log), "rank-died")
    assert died.title.startswith("A process lost its connection to a peer: ncclRemoteError")


def test_a_broken_link_that_training_is_past_is_a_warning() -> None:
    broken = problem("network-error", GONE, pattern="nccl.warn_network")
    steps = [metric("step_seconds", step, 1.0) for step in range(1, 6)]
    found = alone(run_of([*steps[:3], broken, *steps[3:]]), "network-fallback")
    assert found.severity is Severity.WARNING
    assert "did not arrive. Training went on." in found.summary
    assert alone(run_of([*steps, broken]), "network-fallback").severity is Severity.CRITICAL
    again = [row | {"segment": 1} for row in steps]
    found = alone(run_of([*steps, broken, *again]), "network-fallback")
    assert found.severity is Severity.WARNING
    assert "did not arrive. That was in an earlier launch." in found.summary


def test_a_broken_link_that_ends_nobody_is_no_death_and_says_nothing_of_sockets(
    tmp_path: Path,
) -> None:
    log = tmp_path / "run.log"
    log.write_text("w0:288:1307 [0] transport/net_ib.cc:94 NCCL WARN " + GONE)
    run = load(log)
    found = alone(run, "network-fallback")
    assert "rank-died" not in rules(run)
    assert "retries ran out" in found.summary
    assert "ockets" not in found.summary


def test_a_peer_that_was_not_reached_is_told_so(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    refused = "Connect to 10.0.0.7<41322> returned 113(No route to host) errno 115(Operation now)"
    log.write_text(f"w0:288:288 [6] misc/socket.cc:533 NCCL WARN socketPollConnect: {refused}\n")
    found = alone(load(log), "network-fallback")
    assert found.title == "NCCL could not connect to a peer"
    assert found.advice[0].setting == "NCCL_SOCKET_IFNAME"


@pytest.mark.parametrize(
    ("last", "title", "means"),
    [
        (20, "NCCL tries in vain to connect to a peer", "a connection is not made yet"),
        (34, "NCCL could not connect to a peer", "a connection was not made"),
    ],
)
def test_a_peer_that_refuses_again_and_again_is_told_before_the_last_try(
    last: int, title: str, means: str, tmp_path: Path
) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "".join(
            "w0:71:75 [4] NCCL INFO socketPollConnect: connect to 10.0.0.7<523> returned "
            f"Connection refused, retrying ({tried}/34) after sleep for {tried}00 msec\n"
            for tried in range(1, last + 1)
        )
    )
    found = alone(load(log), "network-fallback")
    assert found.title == title
    assert means in found.summary


def test_a_connection_that_had_been_made_is_not_said_to_be_of_the_wrong_address(
    tmp_path: Path,
) -> None:
    log = tmp_path / "run.log"
    lost = "Net : Call to recv from 10.0.0.7<41468> failed : Connection timed out"
    log.write_text(f"w23:83:2526 [0] misc/socket.cc:503 NCCL WARN {lost}\n")
    found = alone(load(log), "network-fallback")
    assert found.title == "NCCL lost the connection to a peer"
    assert "NCCL_SOCKET_IFNAME" not in [one.setting for one in found.advice]


def test_a_resource_that_an_adapter_refuses_is_no_broken_link(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("misc/ibvwrap.cc:280 NCCL WARN Call to ibv_create_qp failed\n")
    found = alone(load(log), "network-fallback")
    assert found.title == "NCCL was refused a resource of an InfiniBand or RoCE adapter"
    assert "data did not arrive" not in found.summary
    assert found.advice[0].setting == "ulimit -l"


def test_an_interface_that_a_host_lacks_is_named_over_nccls_internal_error(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    none = "Bootstrap : no socket interface found"
    raised = (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1249, internal "
        "error - please report this issue to the NCCL developers, NCCL version 2.18.5\n"
        f"ncclInternalError: Internal check failed.\nLast error:\n{none}\n"
    )
    for said in ("", f"w0:288:288 [0] bootstrap.cc:45 NCCL WARN {none}\n"):
        log.write_text(said + raised)
        found = alone(load(log), "rank-died")
        assert none in found.title
        assert [advice.setting for advice in found.advice] == ["NCCL_SOCKET_IFNAME"]


@pytest.mark.parametrize(
    ("text", "title", "whose"),
    [
        (
            "mlx5: node7: got completion with error",
            "An InfiniBand or RoCE adapter reports a transfer that failed",
            "One line of its driver's library: ",
        ),
        ("EI0013: An error CQE occurred", "HCCL reports a broken link", "One line of HCCL: "),
    ],
)
def test_a_broken_link_that_not_nccl_reports_is_not_called_nccls(
    text: str, title: str, whose: str
) -> None:
    broken = problem("network-error", text)
    found = alone(run_of([*steps(10, WELL), broken]), "network-fallback")
    assert found.title == title
    assert found.summary.startswith(whose)


def test_a_channel_by_infiniband_tells_the_network_too(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "w1:40544:41400 [0] NCCL INFO Channel 01 : 11[71000] -> 0[1f000] [receive] via "
        "NET/IB/0/GDRDMA\n"
    )
    assert quiet(load(log), "network-fallback")


def test_infiniband_is_not_advised_to_be_switched_on_where_nccl_looked_for_it(
    tmp_path: Path,
) -> None:
    log = tmp_path / "run.log"
    used = "w0:71:71 [0] NCCL INFO Using network Socket\n"
    channel = "w0:71:75 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0\n"
    for looked, advised in (
        ("", ["NCCL_IB_DISABLE", "NCCL_IB_HCA"]),
        ("w0:71:71 [0] NCCL INFO NET/IB : No device found.\n", ["NCCL_IB_HCA"]),
    ):
        log.write_text(looked + used + channel)
        assert [one.setting for one in alone(load(log), "network-fallback").advice] == advised
