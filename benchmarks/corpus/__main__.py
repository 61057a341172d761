"""`python -m benchmarks.corpus FOLDER`: read every log and compare it with its truth."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import dsprof
from benchmarks.corpus.disputes import dispute
from benchmarks.corpus.facts import checks
from benchmarks.corpus.kinds import KINDS
from benchmarks.corpus.reading import Check, Reading, summary
from benchmarks.corpus.searches import searched
from dsprof.errors import DsprofError

FOLDERS = ("corpus", "real-runs")

#: A line of the table, and whether it is as it should be (None: it only tells).
Line = tuple[str, bool | None]


def logs(folder: Path) -> list[Path]:
    return [path for name in FOLDERS for path in sorted((folder / name).glob("*.log"))]


def judged(log: Path, run: dsprof.Run) -> tuple[Reading, list[Check], list[Check]]:
    """A log's reading, the checks of its truth file (none if it has none), and of searches."""
    reading = Reading(run)
    path = log.with_name(log.name.removesuffix(".log") + ".truth.json")
    truth = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return reading, list(checks(truth, reading)), list(searched(log.read_bytes(), reading))


def table(log: Path) -> Iterator[Line]:
    """The lines of one log."""
    begun = time.perf_counter()
    try:
        reading, truths, searches = judged(log, dsprof.load(log, processes=1))
    except DsprofError as error:
        yield f"{log.name}\n    {error.args[0]}", None
        return
    coverage = reading.run.coverage
    share = coverage.read_lines / coverage.metric_lines if coverage.metric_lines else 1.0
    yield (
        (
            f"{log.name}  {coverage.lines:,} lines, {time.perf_counter() - begun:.2f} s, "
            f"{coverage.read_lines}/{coverage.metric_lines} metric-looking lines understood "
            f"({share:.0%})"
        ),
        None,
    )
    by_kind = groupby(sorted(truths, key=lambda check: check.kind), lambda check: check.kind)
    for kind, some in by_kind:
        patterns = KINDS[kind].patterns if kind in KINDS else ()
        yield from held(log.name, kind, list(some), reading, patterns)
    for check in searches:
        yield from held(log.name, check.kind, [check], reading, [check.kind])
    if not truths:
        yield from told(reading, {check.kind for check in searches})


def held(
    log: str, kind: str, some: Sequence[Check], reading: Reading, patterns: Sequence[str]
) -> Iterator[Line]:
    """One kind of record: found/expected, first and last of them, and each difference."""
    count = next((check for check in some if check.what == "n"), None)
    share = f"{count.found}/{count.expected}" if count else _facts(some)
    wrong = [(check, dispute(log, check)) for check in some if not check.ok]
    right = all(reason for _, reason in wrong)
    verdict = ("truth wrong" if wrong else "ok") if right else "DIFF"
    yield f"    {kind:<28} {share:<12} {verdict:<12} {summary(reading.of(*patterns))}", right
    for check, reason in wrong:
        said = f"{check.what}: found {check.found!r}, expected {check.expected!r}"
        yield f"        {said}" + (f": {reason}" if reason else ""), None


def _facts(some: Sequence[Check]) -> str:
    return f"{sum(check.ok for check in some)}/{len(some)} facts"


def told(reading: Reading, searched_for: set[str]) -> Iterator[Line]:
    """What else was found in a log without a truth file."""
    for pattern in reading.patterns:
        records = reading.of(pattern)
        if pattern not in searched_for:
            yield f"    {pattern:<28} {len(records):<12} {'':<12} {summary(records)}", None


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
    print(f"{len(found)} logs, {len(verdicts)} kinds held against what must be, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
