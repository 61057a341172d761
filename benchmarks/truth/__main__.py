"""`python -m benchmarks.truth [CASE...]`: run the bench, score it, print the table."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.truth import launch
from benchmarks.truth.cases import TABLE, Case
from benchmarks.truth.score import Score, score


def train(cases: Sequence[Case], out: Path) -> None:
    for together in launch.launches(cases):
        begin = time.perf_counter()
        launch.run(together, out)
        print(f"{time.perf_counter() - begin:6.1f} s  {together[0].name} and "
              f"{len(together) - 1} more", file=sys.stderr)  # fmt: skip


def scores(cases: Sequence[Case], out: Path) -> list[Score]:
    found = []
    for case in cases:
        folder = out / case.name
        if not folder.exists():
            continue
        found.append(score(case, folder, "recording"))
        if case.job.logs or case.launch in {"alone", "restarted"}:
            found.append(score(case, folder, "log"))
    return found


def line(one: Score) -> str:
    size = ""
    if one.truth is not None:
        said = "-" if one.seconds is None else f"{one.seconds * 1e3:.1f}"
        size = (
            f"{said} of {one.truth.seconds * 1e3:.1f} ms "
            + (
                {True: "", False: "OFF", None: "" if one.truth.resolved else "unresolved"}[
                    one.sized
                ]
            )
        )
    mark = "right" if one.right else "WRONG"
    named = f"{one.said or '-'} {'' if one.rank is None else one.rank} {one.phase or ''}"
    return (f"{one.case.name:<30}{one.source:<10}{mark:<6}{named:<62}{size:<28}"
            f"{' '.join(one.others)}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.truth")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="names, or how they begin")
    parser.add_argument("--out", type=Path, default=Path("runs/truth"))
    parser.add_argument("--score", action="store_true", help="what was run before, again")
    args = parser.parse_args()
    names = tuple(args.cases)
    cases = [case for case in TABLE if not names or case.name.startswith(names)]
    if not args.score:
        train(cases, args.out.absolute())
    for one in scores(cases, args.out.absolute()):
        print(line(one))


if __name__ == "__main__":
    main()
