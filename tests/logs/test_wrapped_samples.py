"""A log reads the same whatever its launcher, collector or mail program put around each line."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pyarrow as pa
import pytest

from dsprof.logs import read
from dsprof.logs.sources.containers import is_plain_text
from dsprof.run import load
from dsprof.run.versions import Versions, versions
from tests.logs.reading import difference
from tests.logs.reading import read as read_portions

SAMPLES = Path(__file__).parents[2] / "sample_logs"
#: Between them: every block, both logger generations, a comms table, a failure.
NAMES = ("zero1_accumulation_0.19.8", "comms_table_zero3_0.16.9", "killed_rank_torchrun_0.19.8")
#: What a wrapper may add or replace: who printed the line, when, and where it stands.
OWN = ["rank", "host", "at", "text", "source", "line", "record"]

Wrap = Callable[[Sequence[bytes]], list[bytes]]


def before(text: bytes) -> Wrap:
    return lambda lines: [text + line for line in lines]


def numbered(form: bytes, start: int = 1) -> Wrap:
    return lambda lines: [form % number + line for number, line in enumerate(lines, start)]


def docker(size: int) -> Wrap:
    """Docker's json-file driver, which splits lines longer than `size`."""

    def wrap(lines: Sequence[bytes]) -> list[bytes]:
        pieces = [
            (line + b"\n")[at : at + size].decode()
            for line in lines
            for at in range(0, len(line) + 1, size)
        ]
        told = {"stream": "stdout", "time": "2026-11-21T05:00:00.123456789Z"}
        return [json.dumps({"log": piece, **told}).encode() for piece in pieces]

    return wrap


def cri(lines: Sequence[bytes]) -> list[bytes]:
    """containerd: long lines come in partial pieces."""
    made = []
    for line in lines:
        pieces = [line[at : at + 100] for at in range(0, len(line), 100)] or [b""]
        tags = [b"P"] * (len(pieces) - 1) + [b"F"]
        made += [
            b"2026-11-21T05:00:00.1Z stdout %s %s" % both for both in zip(tags, pieces, strict=True)
        ]
    return made


WRAPS: dict[str, Wrap] = {
    "docker": docker(16384),
    "docker, split lines": docker(64),
    "containerd": cri,
    "kubectl --timestamps": before(b"2026-11-21T05:00:00.123456789Z "),
    "kubectl --prefix": before(b"[pod/job-0/main] 2026-11-21T05:00:00.123456789Z "),
    "a platform": before(b"2026-11-21 05:00:00.800 [INFO] 10.42.3.208: "),
    "pdsh": before(b"worker-1: "),
    "pdsh, an address": before(b"172.31.81.82: "),
    "srun --label": before(b"12: "),
    "srun --label, padded": before(b" 0: "),
    "mpirun --tag-output": before(b"[1,0]<stdout>:"),
    "mpirun --timestamp-output": before(b"Tue Nov 21 05:33:09 2026[1,0]<stdout>:"),
    "prterun": before(b"[prterun-host-123@1,0]<stdout>: "),
    "torchrun --tee": before(b"[default0]:"),
    "torch's rank": before(b"[rank0]: "),
    "docker compose": before(b"trainer-1  | "),
    "a collector": before(b"stdout: "),
    "quoted mail": before(b"> "),
    "mail quoted twice": before(b"> > "),
    "indented": before(b"    "),
    "editor line numbers": numbered(b"%d "),
    "numbers in brackets": numbered(b"[%d] ", 1743),
    "numbers before a bar": numbered(b"%d | "),
    "numbers before a bar, an excerpt": numbered(b"%d | ", 97),
    "numbers before a drawn line": numbered("%4d   │ ".encode()),
    "numbers and two blanks": numbered(b"%5d  "),
    "numbers before a comma": numbered(b"%d,"),
    "syslog": before(b"Nov 22 10:00:00 host prog[123]: "),
    "Ray": before(b"\x1b[36m(RayTrainWorker pid=12345, ip=10.0.0.7)\x1b[0m "),
    "Determined": before(b"[2026-11-21T05:00:00.123456Z] 1a2b3c4d [rank=0] || "),
    "python's logging": before(b"2026-11-21 05:00:00,123 - DeepSpeed - INFO - "),
    "stern": before(b"pod container "),
    "terminal colours": lambda lines: [b"\x1b[32m" + line + b"\x1b[0m" for line in lines],
    "Windows line ends": lambda lines: [line + b"\r" for line in lines],
    "pdsh and torchrun --tee": before(b"worker-1: [default0]:"),
    "containerd and pdsh": before(b"2026-11-21T05:00:00.1Z stdout F worker-1: "),
    "docker compose and pdsh": before(b"trainer-2-1  | worker-0: "),
    "a platform and srun": before(b"2026-11-21 05:00:00.800 [INFO] 10.42.3.208:  0: "),
}


def events(folder: Path, lines: Sequence[bytes]) -> pd.DataFrame:
    log = folder / "log.txt"
    log.write_bytes(b"\n".join(lines) + b"\n")
    frame: pd.DataFrame = read([log]).events.to_pandas().drop(columns=OWN)
    return frame.astype(dict.fromkeys(("kind", "name", "raw", "pattern", "timers"), "str"))


@cache
def lines_of(name: str) -> tuple[bytes, ...]:
    return tuple((SAMPLES / f"{name}.log").read_bytes().splitlines())


@cache
def bare_events(name: str) -> pd.DataFrame:
    with TemporaryDirectory() as folder:
        return events(Path(folder), lines_of(name))


#: Those that cut lines or change the ends of them: each log has others that this concerns.
OF_LINES = (
    *("docker", "docker, split lines", "containerd", "indented", "numbers before a bar"),
    *("terminal colours", "Windows line ends"),
)
#: With these each log, with the others one by turns.
WRAPPED = [
    (name, wrapper)
    for at, wrapper in enumerate(WRAPS)
    for name in (NAMES if wrapper in OF_LINES else NAMES[at % len(NAMES) :][:1])
]


@pytest.mark.parametrize(("name", "wrapper"), WRAPPED)
def test_a_wrapped_log_reads_like_the_bare_one(name: str, wrapper: str, tmp_path: Path) -> None:
    bare = bare_events(name)
    wrapped = events(tmp_path, WRAPS[wrapper](lines_of(name)))
    assert wrapped["pattern"].value_counts().to_dict() == bare["pattern"].value_counts().to_dict()
    pd.testing.assert_frame_equal(wrapped, bare)


def judged(folder: Path, lines: Sequence[bytes]) -> list[tuple[object, ...]]:
    log = folder / "log.txt"
    log.write_bytes(b"\n".join(lines) + b"\n")
    findings = load(log).findings
    return [(f.rule, f.severity, f.share, f.seconds_per_step) for f in findings]


def _is_by_logger(line: bytes) -> bool:
    """Whether a rank's logger printed a line: the launcher's own level is another."""
    return any(file in line for file in (b"logging.py:", b"timer.py:", b"config.py:"))


def _is_before_table(line: bytes) -> bool:
    return not line.startswith(b"Comm. Op ")


@pytest.fixture(scope="module")
def headless() -> list[bytes]:
    """At the usual log level DeepSpeed prints its timers, and no line that its logger heads."""
    lines = [line for line in lines_of("straggler_0.19.8") if not _is_by_logger(line)]
    return [*lines, *itertools.dropwhile(_is_before_table, lines_of("comms_table_0.19.8"))]


@pytest.fixture(scope="module")
def verdict(
    headless: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[object, ...]]:
    """What is found where nothing wraps these lines."""
    return judged(tmp_path_factory.mktemp("bare"), headless)


@pytest.mark.parametrize("wrapper", [*WRAPS][::4])
def test_a_log_has_its_verdict_behind_wrappers_too(
    wrapper: str, headless: list[bytes], verdict: list[tuple[object, ...]], tmp_path: Path
) -> None:
    assert "untrustworthy-timers" in [found[0] for found in verdict]  # its table adds up totals
    assert judged(tmp_path, WRAPS[wrapper](headless)) == verdict


def version(folder: Path, lines: Sequence[bytes]) -> Versions:
    log = folder / "log.txt"
    log.write_bytes(b"\n".join(lines) + b"\n")
    run = load(log)
    return versions(run.as_told, run._facts)


@pytest.fixture(scope="module")
def bare_version(headless: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> Versions:
    return version(tmp_path_factory.mktemp("bare"), headless)


@pytest.mark.parametrize("wrapper", WRAPS)
def test_what_a_line_without_a_header_tells_of_the_version_is_told_behind_wrappers_too(
    wrapper: str, headless: list[bytes], bare_version: Versions, tmp_path: Path
) -> None:
    assert bare_version.spans
    assert version(tmp_path, WRAPS[wrapper](headless)) == bare_version


TIMERS = b"time (ms) | fwd: 1.00 | bwd: 2.00 | step: 3.00"


@pytest.mark.parametrize(
    ("wrapper", "host", "rank"),
    [
        ("a platform", "10.42.3.208", None),
        ("pdsh", "worker-1", None),
        ("pdsh, an address", "172.31.81.82", None),
        ("kubectl --prefix", "job-0", None),
        ("mpirun --tag-output", None, 0),
        ("torch's rank", None, 0),
        ("pdsh and torchrun --tee", "worker-1", 0),
        ("docker compose", "trainer-1", None),
        ("numbers before a bar, an excerpt", None, None),
        ("quoted mail", None, None),
        ("editor line numbers", None, None),
        ("indented", None, None),
    ],
)
def test_a_wrapper_gives_what_it_knows(
    wrapper: str, host: str | None, rank: int | None, tmp_path: Path
) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"\n".join(WRAPS[wrapper]([TIMERS])) + b"\n")
    row = read([log]).events.to_pylist()[0]
    assert (row["host"], row["rank"]) == (host, rank)


NUMBERED: dict[str, Wrap] = {
    "grep -n ''": numbered(b"%d:"),
    "awk NR": numbered(b"%d: "),
    "padded": numbered(b"%6d: "),
    "before a bar": numbered(b"%d | "),
    "before a bar, padded": numbered(b"%5d|"),
    "before a drawn line": numbered("%4d   │ ".encode()),
    "before a bar | tail": numbered(b"%d | ", 97),
    "grep -n '' of an indented log": numbered(b"%d:    "),
    "grep -n '' | tail": numbered(b"%d:", 5012),
    "behind an L": numbered(b"L%d: "),
    "behind an L, an excerpt": numbered(b"L%d: ", 120),
}


@pytest.fixture(scope="module")
def unnumbered() -> pa.Table:
    return read_portions(b"\n".join(lines_of(NAMES[0])[:200]) + b"\n").events


#: Each form in portions of some bytes, and whole; every third also byte by byte.
PORTIONS = [
    (numbers, portion)
    for at, numbers in enumerate(NUMBERED)
    for portion in ((1,) * (at % 3 == 0) + (7, 4096)[at % 2 :][:1] + (1 << 30,))
]


@pytest.mark.parametrize(("numbers", "portion"), PORTIONS)
def test_line_numbers_are_no_tasks_however_the_log_comes(
    numbers: str, portion: int, unnumbered: pa.Table
) -> None:
    text = b"\n".join(NUMBERED[numbers](lines_of(NAMES[0])[:200])) + b"\n"
    told = read_portions(text, [portion] * (len(text) // portion)).events
    assert difference(told, unnumbered) == ""


def test_tasks_that_print_in_their_order_are_no_line_numbers() -> None:
    text = b"".join(b"%d: %s\n" % (task, TIMERS) for task in [*range(2, 64), *range(64)])
    assert len(set(read_portions(text).events["host"].to_pylist())) == 64


def test_labels_of_tasks_that_repeat_are_no_line_numbers(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"".join(b"%d: %s\n" % (task, TIMERS) for task in (1, 2, 3, 0, 1, 2, 3, 0)))
    hosts = read([log]).events.to_pandas()["host"]
    assert set(hosts) == {"task 0", "task 1", "task 2", "task 3"}


def test_hosts_that_are_called_like_lines_stay_hosts() -> None:
    """Each of sixteen says its line, in their order, and some go on."""
    text = b"".join(b"L%d: %s\n" % (host, TIMERS) for host in [*range(1, 17), 3, 5])
    assert len(set(read_portions(text).events["host"].to_pylist())) == 16


def test_a_short_excerpt_of_lettered_lines_names_no_hosts() -> None:
    text = b"".join(b"L%d: %s\n" % (n, TIMERS) for n in (12, 13, 14))
    assert set(read_portions(text).events["host"].to_pylist()) == {None}


def test_no_ranges_are_read_of_a_file_with_line_numbers() -> None:
    lines = NUMBERED["awk NR"]([TIMERS] * 40)
    assert not is_plain_text(b"\n".join(lines))
    assert not is_plain_text(b"\n".join(lines[:5]))
    assert is_plain_text(b"0: a\n1: b\n")
