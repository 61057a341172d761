"""What the codes in error messages of NCCL, HCCL, torch_npu and NVIDIA's driver mean."""

from __future__ import annotations

import re
from typing import Final

#: What HCCL's functions return (`HcclResult` of CANN's hccl_types.h).
_HCCL: Final = {
    "1": "a parameter was wrong",
    "2": "a pointer was empty",
    "3": "memory",
    "4": "an internal error",
    "5": "not supported",
    "6": "something it needs was not found",
    "7": "a resource was not available",
    "8": "a system call failed",
    "9": "it timed out",
    "11": "a TCP connection failed",
    "12": "a RoCE connection failed",
    "13": "a TCP transfer failed",
    "14": "a RoCE transfer failed",
    "15": "the runtime failed",
    "16": "the driver failed",
    "19": "the network failed",
    "21": "the peer, or the path to it, did not answer",
}
_HCCL_RESULT: Final = re.compile(r"HCCL function error: .{1,200}error code is (\d{1,3})\b")

#: What torch_npu's functions return, as the lines below them explain it.
_NPU: Final = {
    "507014": "an AI core did not end in time",
    "507015": "an AI core met an error",
    "507018": "an AI CPU met an error",
    "507034": "a vector core did not end in time",
    "507035": "a vector core met an error",
    "507046": "what was queued on the device did not end in time, as when it waits for a peer",
    "507053": "its memory had an error",
    "507054": "its memory had an error that ECC could not correct",
    "507056": "a link between devices failed",
}
_NPU_RESULT: Final = re.compile(r"NPU (?:function )?error.{1,120}error code is (\d{6})\b")

#: InfiniBand's completion status -> what it means (`enum ibv_wc_status` of rdma-core's verbs.h).
_COMPLETIONS: Final = {
    "4": "the adapter was not allowed to use memory of its own host that it was given",
    "5": "an earlier error had closed the queue already",
    "10": "the peer refused access to its memory",
    "12": "retries ran out, the peer or the path to it did not answer",
    "13": "the peer was not ready to receive, and retries ran out",
}
_COMPLETION: Final = re.compile(
    r"Got completion from peer \S{1,100} with (?:error |status=)(\d{1,3})\b"
)

_UNCORRECTED: Final = "its memory had an error that ECC could not correct"
_NVLINK: Final = "an error of NVLink"

#: The driver's Xid -> what it means (NVIDIA's "Xid Errors", docs.nvidia.com/deploy/xid-errors).
_XIDS: Final = {
    "13": "an exception of the GPU's engine, mostly a program that reaches out of bounds",
    "31": "a process reached for memory that is not its own, mostly a fault of the program",
    "32": "the stream of commands to the GPU was corrupted",
    "43": "the GPU stopped what a process ran, mostly for a fault of the program",
    "46": "the GPU stopped processing",
    "48": _UNCORRECTED,
    "62": "its internal micro-controller halted",
    "64": "a faulty page or row of its memory could not be put out of use",
    "69": "an exception of the GPU's engine",
    "74": _NVLINK,
    "79": "the driver cannot reach it over PCIe any more",
    "94": f"{_UNCORRECTED}, which hit no other process",
    "95": f"{_UNCORRECTED}, which may have hit other processes",
    "109": "changing from one context to the next took too long",
    "119": "its system processor (GSP) did not answer the driver in time",
    "120": "its system processor (GSP) met an error",
    "121": "an error of the link between it and the host's processor (C2C)",
    "140": _UNCORRECTED,
    "143": "it could not be initialized",
    **dict.fromkeys(("144", "145", "146", "147", "148", "149", "150"), _NVLINK),
}
_XID: Final = re.compile(r"^Xid \(\S{1,40}\): (\d{1,3})\b")


def code_meant(text: str) -> str:
    """What the code in a line of NCCL (an InfiniBand completion), HCCL, torch_npu or NVIDIA's
    driver means, as a sentence; "" if unknown."""
    for whose, code, meanings in (
        ("InfiniBand's error", _COMPLETION, _COMPLETIONS),
        ("HCCL's code", _HCCL_RESULT, _HCCL),
        ("torch_npu's code", _NPU_RESULT, _NPU),
        ("The driver's Xid", _XID, _XIDS),
    ):
        found = code.search(text)
        if found and found[1] in meanings:
            return f" {whose} {found[1]}: {meanings[found[1]]}."
    return ""
