"""Whom HCCL, the collectives of Ascend, names where one of them timed out."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Evidence
from dsprof.quotes import quoted
from dsprof.run.table import among, where

#: Its words for what its heartbeats told, and what they mean.
_MEANS: Final = {
    "Heartbeat Lost Occurred": "none of its heartbeats came for 30 s: its process has ended, or "
    "the network to it was cut",
    "Stuck Occurred": "its process was there, and stood still",
    "Error cqe Occurred": "packets to it were sent again too often, as over a broken link",
}
_SHOWN: Final = 3

OF_NAMED: Final = Advice(
    "log of that process, dmesg on its host",
    "",
    "look how it ended, or where it stood",
    "the others only waited for it",
)


def named_by_heartbeats(facts: Facts, row: pd.Series[Any]) -> tuple[str, str, tuple[Evidence, ...]]:
    """Devices that HCCL names in the launch of a failure, what it tells of the first of them, and
    where; nothing if it names none."""
    told = facts.run.told
    mine = among(told["name"], ["hccl_suspect"]) & (told["segment"] == row["segment"])
    rows = where(told, mine)
    if rows.empty:
        return "", "", ()
    first = rows.iloc[0]
    devices = list(dict.fromkeys(str(text).partition(": ")[0] for text in rows["text"]))
    names = ", ".join(devices[:_SHOWN]) + " and others" * (len(devices) > _SHOWN)
    what = str(first["text"]).partition(": ")[2]
    said = f"HCCL's heartbeats name {names}: {_MEANS.get(what, what)}."
    return names, said, (row_evidence(first, quoted(first["text"], 200)),)
