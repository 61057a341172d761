"""Write a log of known truth: `python -m benchmarks.generate OUT --size 1GiB --metric-share 0.2`.

The log is a series of launches, each a plausible run of one dialect: steps increase, and lines
stand in the order in which the framework prints them. Noise, decoys, launchers' prefixes, colours,
glued and torn records and broken bytes are mixed in. OUT.truth.json says what a reader must find.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from benchmarks import noise
from benchmarks.counts import Numbers, Truth
from benchmarks.dialects import DIALECTS, NOW_COMMA, NOW_POINT, NOW_RFC, Block, Launch, logger

START = np.datetime64("2024-03-15T13:21:52.800", "ms")
BLOCK = 1 << 20  # bytes of text rendered at a time
#: What happens to a record's line, and how often.
MANGLES = {"none": 0.955, "colour": 0.03, "glue": 0.01, "tear": 0.005}
_SUFFIXES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


@dataclass(frozen=True)
class Options:
    """What to write. `steps`, where given, ends the log instead of `size`."""

    size: int = 1 << 20  # bytes
    metric_share: float = 0.2  # of the physical lines
    seed: int = 1
    wrapper: str = "sections"  # a name of WRAPPERS, "mixed" (line by line) or "sections" (launches)
    dialects: tuple[str, ...] = field(default=tuple(DIALECTS))
    launches: int = 5
    steps: int | None = None  # rows of steps a launch
    newline: str = "\n"  # "\n", "\r\n", or "" for one line as long as the file
    clean: bool = False  # no colour, glue or torn heads

    def per_launch(self) -> float:
        """Bytes of one launch."""
        return self.size / self.launches if self.steps is None else math.inf

    def last_step(self) -> float:
        return math.inf if self.steps is None else self.steps


def parse_size(text: str) -> int:
    """`64MiB` -> 67108864; K, M and G count in thousands."""
    digits = text.rstrip("KMGiBkmgb")
    unit = text[len(digits) :].upper()
    unit = unit if unit.endswith("IB") else unit.removesuffix("B")
    return int(float(digits) * _SUFFIXES[unit])


class Writer:
    """Turns blocks of steps into the text of one launch."""

    def __init__(self, options: Options, number: int, rng: np.random.Generator) -> None:
        self.options, self.rng = options, rng
        wrappers = list(noise.WRAPPERS)
        sections = options.wrapper == "sections"
        self.wrapper = wrappers[number % len(wrappers)] if sections else options.wrapper
        own = np.zeros(len(wrappers), dtype=int)
        self.own = itertools.cycle(noise.prefixes(self.wrapper, own))
        self.others = noise.prefixes(self.wrapper, rng.integers(0, 8, 997))
        self.pool = noise.pool(rng, 20_000)
        self.torn = itertools.cycle(noise.TORN)

    def text(self, block: Block, launch: Launch, truth: Truth) -> str:
        """The block's lines with noise among them, prefixes before and the time filled in."""
        rows = list(zip(*block.columns, strict=True))
        units = [unit.split("\n") for row in rows for unit in row if unit]
        share = self.options.metric_share
        gaps = self.rng.poisson((1 - share) / share, sum(map(len, units))).tolist()
        crowd = self._crowd(sum(gaps))
        fates, spaces = self._fates(len(units)), iter(gaps)
        clocks = _clocks(launch.seconds + np.cumsum(block.seconds))
        launch.seconds += float(block.seconds.sum())
        texts = []
        for row, clock in zip(rows, clocks, strict=True):
            lines = self._row(row, fates, spaces, crowd, truth)
            truth.lines += len(lines)
            texts.append(_stamp("\n".join(lines), clock))
        return "\n".join(texts) + "\n"

    def opening(self, launch: Launch, truth: Truth) -> str:
        """What the launcher and the engine print at a start."""
        lines = [next(self.own) + line for line in opening_lines(launch)]
        truth.lines += len(lines)
        return _stamp("\n".join(lines), _clocks(np.array([launch.seconds]))[0]) + "\n"

    def _row(
        self,
        row: Sequence[str],
        fates: Iterator[str],
        gaps: Iterator[int],
        crowd: Iterator[str],
        truth: Truth,
    ) -> list[str]:
        """The physical lines of one step."""
        lines: list[str] = []
        metric_lines: set[int] = set()
        gap = 1
        for unit in filter(None, row):
            fate, prefix, parts = next(fates), next(self.own), unit.split("\n")
            if len(parts) > 1:
                lines.extend(prefix + part for part in parts)
            elif fate == "glue" and not gap:
                lines[-1] += unit
            else:
                lines.append(prefix + self._mangled(unit, fate, len(lines)))
            metric_lines.update(range(len(lines) - len(parts), len(lines)))
            gap = sum(next(gaps) for _ in parts)
            lines.extend(itertools.islice(crowd, gap))
        truth.metric_lines += len(metric_lines)
        return lines

    def _mangled(self, unit: str, fate: str, number: int) -> str:
        if fate == "colour":
            return f"\x1b[32m{unit}\x1b[0m"
        if fate == "glue":
            return noise.bar(number) + unit
        if fate == "tear":
            return next(self.torn) + unit
        return unit

    def _fates(self, count: int) -> Iterator[str]:
        chances = list(MANGLES.values())
        draw = np.full(count, 0) if self.options.clean else self.rng.choice(4, count, p=chances)
        names = list(MANGLES)
        return iter([names[index] for index in draw.tolist()])

    def _crowd(self, count: int) -> Iterator[str]:
        picks = self.rng.integers(0, len(self.pool), count).tolist()
        hosts = self.rng.integers(0, len(self.others), count).tolist()
        return iter([self.others[h] + self.pool[p] for h, p in zip(hosts, picks, strict=True)])


def _clocks(seconds: Numbers) -> list[str]:
    """Times of day as `2024-03-15T13:21:52.800`."""
    times = START + (seconds * 1000).astype("timedelta64[ms]")
    return [str(time) for time in np.datetime_as_string(times, unit="ms")]


def _stamp(text: str, clock: str) -> str:
    spaced = clock.replace("T", " ")
    text = text.replace(NOW_COMMA, spaced.replace(".", ","))
    return text.replace(NOW_POINT, spaced).replace(NOW_RFC, clock + "456789Z")


def opening_lines(launch: Launch) -> tuple[str, str]:
    start = "cmd = /usr/bin/python3 -u -m deepspeed.launcher.launch --world_info=e30= train.py"
    info = f"DeepSpeed info: version={launch.dialect.version}, git-hash=unknown, git-branch=unknown"
    return (
        logger("runner.py:568:main") + start,
        logger(launch.dialect.place) + "[Rank -1] " + info,
    )


def launch_text(options: Options, number: int, truth: Truth) -> Iterator[str]:
    """The text of one launch, block by block."""
    dialect = options.dialects[number % len(options.dialects)]
    rng = np.random.default_rng([options.seed, number])
    launch = Launch(DIALECTS[dialect], rng, seconds=number * 30 * 86_400)
    writer = Writer(options, number, rng)
    if options.newline:  # else a launcher's command would have no end
        yield writer.opening(launch, truth)
    written, count = 0, 4
    while written < options.per_launch() and launch.step < options.last_step():
        count = int(min(count, options.last_step() - launch.step))
        steps = np.arange(launch.step + 1, launch.step + 1 + count)
        text = writer.text(launch.dialect.block(launch, truth, steps), launch, truth)
        launch.step += count
        written += len(text)
        count = max(1, round(min(BLOCK, options.per_launch() / 20) * count / len(text)))
        yield text
    truth.launches.append({"dialect": dialect, "wrapper": writer.wrapper, "rows": launch.step})


def write(out: Path, options: Options) -> Truth:
    """The log at `out` and its truth at `out`.truth.json."""
    truth = Truth()
    with out.open("wb") as log:
        for number in range(options.launches):
            for text in launch_text(options, number, truth):
                log.write(encoded(text, options.newline))
    report = {"options": asdict(options), "bytes": out.stat().st_size, **truth.as_json()}
    truth_path(out).write_text(json.dumps(report, indent=1))
    return truth


def encoded(text: str, newline: str) -> bytes:
    """The text's bytes; without `newline` all of it is one line."""
    if not newline:
        text = text.replace("\n", "").replace("\r", "")
    elif newline != "\n":
        text = text.replace("\n", newline)
    return text.encode("utf-8", "surrogateescape")


def truth_path(log: Path) -> Path:
    return log.with_name(log.name + ".truth.json")


def write_bars(out: Path, size: int, seed: int = 1) -> Truth:
    """A progress bar's output: no line break at all, a Trainer's record at every 500th update."""
    truth = Truth()
    rng = np.random.default_rng(seed)
    launch = Launch(DIALECTS["huggingface"], rng)
    written = 0
    with out.open("wb") as log:
        while written < size:
            steps = np.arange(launch.step + 1, launch.step + 65)
            launch.step += 64
            (records,) = launch.dialect.block(launch, truth, steps).columns
            updates = rng.integers(0, 90_000, 499 * len(records)).tolist()
            text = "".join(
                record + "".join(map(noise.bar, updates[499 * i : 499 * (i + 1)]))
                for i, record in enumerate(records)
            )
            written += log.write(encoded(text, "\n"))
    truth_path(out).write_text(json.dumps({"bytes": written, **truth.as_json()}, indent=1))
    return truth


def compress(log: Path, form: str) -> Path:
    """`log`.gz or `log`.zst, beside it."""
    packed = log.with_name(f"{log.name}.{form}")
    with log.open("rb") as plain, _packer(packed, form) as out:
        while block := plain.read(BLOCK):
            out.write(block)
    return packed


def _packer(packed: Path, form: str) -> BinaryIO:
    if form == "gz":
        return gzip.open(packed, "wb", compresslevel=4)  # type: ignore[return-value]
    import zstandard

    return zstandard.open(packed, "wb")  # type: ignore[no-any-return]


def parser() -> argparse.ArgumentParser:
    known = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.generate")
    known.add_argument("out", type=Path)
    known.add_argument("--size", type=parse_size, default="64MiB", help="64MiB, 1GiB, 100MB")
    known.add_argument("--metric-share", type=float, default=0.2, help="share of lines, 0 to 1")
    known.add_argument("--seed", type=int, default=1)
    known.add_argument("--wrapper", choices=[*noise.WRAPPERS, "mixed", "sections"],
                       default="sections", help="mixed: by line; sections: by launch")  # fmt: skip
    known.add_argument("--dialects", default=",".join(DIALECTS), help="comma-separated")
    known.add_argument("--launches", type=int, help="default: one for each dialect")
    known.add_argument("--steps", type=int, help="rows of steps per launch, instead of --size")
    known.add_argument("--newline", choices=["lf", "crlf", "none"], default="lf")
    known.add_argument("--clean", action="store_true", help="no colour, glue or torn records")
    known.add_argument("--bars", action="store_true", help="only progress bars, no line breaks")
    known.add_argument("--compress", default="", help="also gz, zst or gz,zst")
    return known


def main() -> None:
    args = parser().parse_args()
    dialects = tuple(args.dialects.split(","))
    if args.bars:
        write_bars(args.out, args.size, args.seed)
    else:
        options = Options(
            size=args.size,
            metric_share=args.metric_share,
            seed=args.seed,
            wrapper=args.wrapper,
            dialects=dialects,
            launches=args.launches or len(dialects),
            steps=args.steps,
            newline={"lf": "\n", "crlf": "\r\n", "none": ""}[args.newline],
            clean=args.clean,
        )
        write(args.out, options)
    for form in filter(None, args.compress.split(",")):
        compress(args.out, form)


if __name__ == "__main__":
    main()
