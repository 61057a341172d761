"""Where a careful reading of the log disagrees with its truth file, and why.

The truth files were made by narrow searches and by eye. Each entry is one check in which the truth
is wrong, not the reader: (log, kind, what) and the lines that show it.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.corpus.reading import Check

THREAD = "known from the thread it was posted in: "

DISPUTES: Mapping[tuple[str, str, str], str] = {
    ("07", "memory_mb_lines", "n"): (
        "line 844 holds the records of rank 45 and rank 47, glued: 63 lines, 64 records"
    ),
    ("27", "ds_version", ""): (
        "line 11 says version=2.1, as releases before the first public numbering did; 0.1 is "
        "what it was called later"
    ),
    ("35", "framework", ""): THREAD + "its 6 lines are DeepSpeed's, and bars anybody draws",
    ("36", "framework", ""): THREAD + "its 26 lines are DeepSpeed's, and HTML of a notebook",
    ("50", "framework", ""): THREAD + "its 7 lines are a bar anybody draws, and NCCL's watchdog",
    ("66", "framework", ""): THREAD + "its 6 lines are DeepSpeed's engine",
}


def dispute(log: str, check: Check) -> str | None:
    """Why the truth of this check is wrong; None if nothing speaks against it."""
    return DISPUTES.get((log.partition("_")[0], check.kind, check.what))
