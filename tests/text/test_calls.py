"""What a log without steps says of communication is shown, and nothing is counted twice."""

from __future__ import annotations

from pathlib import Path

from dsprof.run import load
from tests.loaded import sample
from tests.text.said import shown

HEAD = (
    *("Comm. Op", "Message Size", "Count", "Total Latency(ms)", "Avg Latency(ms)"),
    *("tput_avg (Gbps)", "busbw_avg (Gbps)"),
)


def table(count: int, milliseconds: str) -> str:
    """What DeepSpeed's communication logger prints of all calls so far."""
    sizes = (
        ("", "2.0 KB", count, milliseconds, "0.08", "0.43", "0.41"),
        ("", "2.0 MB", 24, "2.05", "0.08", "397.06", "372.24"),
    )
    lines = ["".join(f"{cell:<20}" for cell in cells) for cells in (HEAD, ("broadcast",), *sizes)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


SINGLE = (
    "[2023-01-11 13:27:07,209] [INFO] [logging.py:68:log_dist] [Rank 0] rank=0 | comm op: broadcast"
    " | time (ms): 4138.40 | msg size: 2.0 KB | algbw (Gbps): 0.00  | busbw (Gbps): 0.00\n"
)


def said_of(folder: Path, text: str) -> str:
    (folder / "run.log").write_text(text, encoding="utf-8")
    return " ".join(shown(load(folder / "run.log"), 120).split())


def test_the_last_summary_is_told_where_no_step_is_timed(tmp_path: Path) -> None:
    """Each counts from the start: an earlier one is part of a later one."""
    both = table(46, "3.12") + table(146, "11.12")
    said = said_of(tmp_path, both)
    assert "Communication since the start, by the communication logger's summary" in said
    assert "broadcast 170 calls, 48.3 MiB in 13.2 ms, 3.84 GB/s" in said


def test_single_calls_are_told_where_there_is_no_summary(tmp_path: Path) -> None:
    said = said_of(tmp_path, SINGLE)
    assert "Communication single calls that are logged" in said
    assert "broadcast 1 call, 2.00 KiB in 4.14 s" in said


def test_a_log_without_calls_has_no_such_section(tmp_path: Path) -> None:
    assert "Communication" not in said_of(tmp_path, "{'loss': 1.5, 'epoch': 0.1}\n")


def test_how_long_doubted_calls_took_is_not_told() -> None:
    """Their latencies are sums of sums: 10.3 s for 80 calls of a run that took less."""
    said = " ".join(shown(sample("comms_table_0.19.8"), 120).split())
    assert (
        "all_reduce 80 calls, 60.8 MiB all_gather_into_tensor 40 calls, 30.3 MiB broadcast" in said
    )
    assert "How long they took cannot be trusted: see below." in said


def test_what_the_logger_adds_for_its_own_summary_is_no_call_of_the_job() -> None:
    assert "all_reduce 80 calls" in " ".join(shown(sample("comms_table_0.19.8"), 120).split())
    assert "log_summary_barrier" not in shown(sample("comms_table_0.19.8"), 120)
