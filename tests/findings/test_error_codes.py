"""Codes in error messages are explained in words."""

from __future__ import annotations

from tests.findings.plants import one, problem, run_of


def test_what_hccl_returned_is_told_in_words() -> None:
    text = "HCCL function error: HcclGetRootInfo(&hcclID), error code is {}"
    found = one(run_of([problem("exception", text.format(9), rank=0)]), "rank-died")
    assert found.summary.endswith(" HCCL's code 9: it timed out.")
    unknown = one(run_of([problem("exception", text.format(77), rank=0)]), "rank-died")
    assert "HCCL's code" not in unknown.summary
