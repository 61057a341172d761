"""`python -m benchmarks.corpus FOLDER`: every log read, and held against its truth."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import dsprof
from dsprof.errors import DsprofError

from benchmarks.corpus.disputes import dispute
from benchmarks.corpus.facts import checks
from benchmarks.corpus.kinds import KINDS, summary
from benchmarks.corpus.reading import Check, Reading

FOLDERS = ("corpus", "real-runs")


def logs(folder: Path) -> list[Path]:
    return [path for name in FOLDERS for path in sorted((folder / name).glob("*.log"))]


def judged(log: Path) -> tuple[Reading, list[Check]]:
    """A log's reading, and the checks of its truth file (none if it has none)."""
    reading = Reading(dsprof.load(log, processes=1))
    path = log.with_name(log.name.removesuffix(".log") + ".truth.json")
    truth = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return reading, list(checks(truth, reading))


def table(log: Path) -> Iterator[tuple[str, bool | None]]:
    """The lines of one log; each with whether it is as the truth says, None if it does not."""
    begun = time.perf_counter()
    try:
        reading, found = judged(log)
    except DsprofError as error:
        yield f"{log.name}\n    {error}", None
        return
    coverage = reading.run.coverage
    understood = f"{coverage.read_lines}/{coverage.metric_lines} metric-looking lines understood"
    took = time.perf_counter() - begun
    yield f"{log.name}  {coverage.lines:,} lines, {took:.2f} s, {understood}", None
    by_kind = groupby(sorted(found, key=lambda check: check.kind), lambda check: check.kind)
    for kind, some in by_kind:
        yield from held(log.name, kind, list(some), reading)
    if not found:
        yield from told(reading)


def held(
    log: str, kind: str, some: list[Check], reading: Reading
) -> Iterator[tuple[str, bool | None]]:
    """One kind of record against its truth: found/expected, first and last, each difference."""
    records = reading.of(*KINDS[kind].patterns) if kind in KINDS else []
    count = next((check for check in some if check.what == "n"), None)
    share = f"{count.found}/{count.expected}" if count else _words(some)
    wrong = [(check, dispute(log, check)) for check in some if not check.ok]
    right = all(reason for _, reason in wrong)
    verdict = ("truth wrong" if wrong else "ok") if right else "DIFF"
    yield f"    {kind:<28} {share:<14} {verdict:<12} {summary(records)}", right
    for check, reason in wrong:
        said = f"{check.what}: found {check.found!r}, truth says {check.expected!r}"
        yield f"        {said}" + (f": {reason}" if reason else ""), None


def _words(some: list[Check]) -> str:
    return f"{sum(check.ok for check in some)}/{len(some)} facts"


def told(reading: Reading) -> Iterator[tuple[str, bool | None]]:
    """What was found in a log without a truth file."""
    for pattern in reading.patterns:
        records = reading.of(pattern)
        yield f"    {pattern:<28} {len(records):<14} {'':<12} {summary(records)}", None


def main() -> int:
    known = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.corpus")
    known.add_argument("folder", type=Path, help="holds corpus/ and real-runs/")
    folder = known.parse_args().folder
    found = logs(folder)
    if not found:
        print(f"{folder}: no logs in its corpus/ or real-runs/", file=sys.stderr)
        return 1
    verdicts: list[bool] = []
    for log in found:
        for line, right in table(log):
            print(line, flush=True)
            verdicts += [] if right is None else [right]
    wrong = verdicts.count(False)
    print(f"{len(found)} logs, {len(verdicts)} kinds held against a truth, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
