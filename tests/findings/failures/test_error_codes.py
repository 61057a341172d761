"""Codes in error messages are explained in words."""

from __future__ import annotations

from tests.findings.plants import alone, problem, run_of


def test_what_hccl_returned_is_told_in_words() -> None:
    text = "HCCL function error: HcclGetRootInfo(&hcclID), error code is {}"
    found = alone(run_of([problem("exception", text.format(9), rank=0)]), "rank-died")
    assert found.summary.endswith(" HCCL's code 9: it timed out.")
    unknown = alone(run_of([problem("exception", text.format(77), rank=0)]), "rank-died")
    assert "HCCL's code" not in unknown.summary


def test_what_torch_npu_returned_is_told_in_words() -> None:
    text = "ACL stream synchronize failed. NPU function error: x, error code is 507035"
    found = alone(run_of([problem("exception", text, rank=0)]), "rank-died")
    assert found.summary.endswith(" torch_npu's code 507035: a vector core met an error.")


def test_what_nvidias_driver_reports_of_a_gpu_is_told_in_words() -> None:
    text = "Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus"
    found = alone(run_of([problem("gpu-lost", text, host="node7", step=40)]), "rank-died")
    assert found.title.startswith("A GPU on node7 was lost after step 40: Xid")
    assert found.summary.endswith(" Xid 79: the driver cannot reach it over PCIe any more.")
    text = "Xid (PCI:0000:07:00): 48, pid=4101, An uncorrectable double bit error (DBE)"
    found = alone(run_of([problem("gpu-error", text, value=48)]), "rank-died")
    assert found.title.startswith("A GPU failed: Xid")
    assert " Xid 48: its memory had an error that ECC could not correct." in found.summary
