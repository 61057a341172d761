"""`python -m benchmarks.truth [CASE...]`: run the bench, score it, print the table."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.truth import launch, page, rival
from benchmarks.truth.cases import TABLE, Case
from benchmarks.truth.score import Score, advised, score


def train(cases: Sequence[Case], out: Path) -> None:
    throttles = launch.can_throttle()
    for together in launch.launches(cases):
        if together[0].launch == "throttled" and not throttles:
            print("no network namespaces here: a throttled link is not run", file=sys.stderr)
            continue
        timed(lambda: launch.run(together, out), f"{together[0].name} and {len(together) - 1} more")  # noqa: B023


def timed(action: Callable[[], None], what: str) -> None:
    """What fails is said and missing in the table; the rest of the bench goes on."""
    begin = time.perf_counter()
    try:
        action()
    except RuntimeError as error:
        what += f": {error}"
    print(f"{time.perf_counter() - begin:6.1f} s  {what}", file=sys.stderr, flush=True)


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
    mark = "right" if one.right else "WRONG"
    return (f"{one.case.name:<30}{one.source:<10}{mark:<6}{page.verdict(one):<62}"
            f"{page.size(one):<30}{' '.join(one.others)}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.truth")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="names, or prefixes of names")
    parser.add_argument("--out", type=Path, default=Path("runs/truth"))
    parser.add_argument("--score", action="store_true", help="score earlier runs again")
    parser.add_argument("--rival", action="store_true", help="also run TraceML on the same jobs")
    parser.add_argument("--write", action="store_true", help="write the tables of docs/truth.md")
    args = parser.parse_args()
    names, out = tuple(args.cases), args.out.absolute()
    cases = [case for case in TABLE if not names or case.name.startswith(names)]
    if not args.score:
        train(cases, out)
    if args.rival and not args.score:
        timed(lambda: rival.run(cases, out / "rival"), "the rival")
    found = scores(cases, out)
    opinions = rival.opinions(cases, out / "rival") if args.rival else []
    for one in found:
        print(line(one))
    for said in opinions:
        print(f"{said.case.name:<30}TraceML   {page.opinion(said)}")
    tested = [told for case in cases if (told := advised(case, out / case.name))]
    print(page.advice(tested))
    print(page.summary(found, opinions, tested))
    if args.write:
        page.write({
            "summary": page.summary(found, opinions, tested),
            "verdicts": page.verdicts(found, opinions),
            "advice": page.advice(tested),
            "translation": page.translation(),
        })  # fmt: skip


if __name__ == "__main__":
    main()
