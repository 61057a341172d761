"""What a failure's own message adds to the sentence about it."""

from __future__ import annotations

from tests.findings.plants import one, problem, run_of

TAKEN = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
    "network address. port: 29501, useIpv6: false, code: -98, name: EADDRINUSE"
)


def test_a_taken_port_is_told_by_its_number_and_not_twice() -> None:
    found = one(run_of([problem("port-in-use", TAKEN)]), "rank-died")
    assert found.title.endswith("could not open the launcher's port: it is taken (port 29501)")
    assert found.evidence[0].text == TAKEN


def test_a_message_in_the_first_sentence_is_cut_behind_a_word_with_an_ellipsis() -> None:
    message = "RuntimeError: " + " ".join(["expected"] * 40)
    found = one(run_of([problem("exception", message)]), "rank-died")
    assert found.title.endswith(" expected expected…")
