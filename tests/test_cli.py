"""The command line as a user meets it: what it prints, where, and how it ends."""

from __future__ import annotations

import gzip
import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

import dsprof
from dsprof.cli import app
from dsprof.errors import DsprofError
from dsprof.recording import Writer
from dsprof.run import load
from tests import commands
from tests.conftest import ROOT, SAMPLES, Dsprof, heeding_sigint

SEED = SAMPLES / "neox_pipeline_2023.log"
DIED = SAMPLES / "killed_rank_0.19.8.log"
QUIET = SAMPLES / "quiet_0.19.8.log"


def told_off(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One clear line on standard error, nothing on standard output, exit code 1."""
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("dsprof: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


# --- what it says -----------------------------------------------------------


def test_report_says_the_verdict_first_and_ends_well(cli: Dsprof) -> None:
    done = cli("report", SEED)
    assert (done.returncode, done.stderr) == (0, "")
    verdict = " ".join(done.stdout.partition("\n\n")[0].split())
    assert verdict == dsprof.load(SEED).findings[0].title
    assert "4.11 s of 5.75 s per step (71 %)" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_pipe_gets_no_colour_and_no_trailing_blanks(cli: Dsprof) -> None:
    out = cli("report", SEED).stdout
    assert "\x1b" not in out
    assert [line for line in out.splitlines() if line != line.rstrip()] == []


def in_terminal(arguments: list[str], **environment: str) -> str:
    """What the command writes to a terminal."""
    ours, theirs = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "FORCE_COLOR"}}
    kept |= {"TERM": "xterm-256color", "COLUMNS": "80"} | environment
    started = commands.Started(arguments, ROOT, kept, [theirs, theirs, theirs])
    os.close(theirs)
    out = b""
    with suppress(OSError):  # Linux tells the end of a terminal so
        while piece := os.read(ours, 65536):
            out += piece
    os.close(ours)
    assert started.end() == 0
    return out.decode()


@pytest.mark.parametrize(("sent", "name"), [(1, "standard output"), (2, "standard error")])
def test_of_two_streams_the_one_that_is_no_terminal_is_named(
    sent: int, name: str, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    with (tmp_path / "sent").open("wb") as file:
        streams = [theirs, *(file.fileno() if one == sent else theirs for one in (1, 2))]
        started = commands.Started(["live", str(SEED)], ROOT, dict(os.environ), streams)
        assert started.end() == 1
    os.close(theirs)
    told = (tmp_path / "sent").read_bytes() if sent == 2 else os.read(ours, 65536)
    os.close(ours)
    assert told.decode().startswith(f"dsprof: {name} is no terminal (use --once or --json)")


def test_a_terminal_gets_colour_unless_no_color_says_otherwise() -> None:
    assert "\x1b[" in in_terminal(["report", str(SEED)])
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", in_terminal(["report", str(SEED)], NO_COLOR="1"))


def test_an_encoding_without_blocks_gets_other_bars() -> None:
    done = shell(f"dsprof report {SEED}", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "##############" in done.stdout


def test_an_encoding_without_signs_gets_no_question_marks_for_them() -> None:
    logs = (
        f"{SAMPLES / 'zero2_accumulation_0.16.9.log'} {SAMPLES / 'zero2_accumulation_0.19.8.log'}"
    )
    done = shell(f"dsprof compare --tolerance 100 {logs}", PYTHONIOENCODING="ascii")
    assert "<" in done.stdout
    assert "?" not in done.stdout


def test_standard_input_is_a_log_too(cli: Dsprof) -> None:
    assert cli("report", "-", input=SEED.read_text()).stdout.startswith("76 % of a step")


@pytest.mark.parametrize(
    "script", ["dsprof report <(cat {0})", "cat {0} | dsprof report /dev/stdin"]
)
def test_a_pipe_with_a_name_loses_nothing(script: str) -> None:
    """What is read of it to see what it is would be gone."""
    done = (anew if "<(" in script else shell)(script.format(SEED))
    assert done.stdout.startswith("76 % of a step")
    assert f"Read   {SEED.read_text().count(chr(10)):,} lines" in done.stdout


def shell(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script of bash in which `dsprof` is the command, once, and a failing pipe fails."""
    return commands.shell(script, ROOT, os.environ | {"COLUMNS": "80"} | environment)


def anew(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same where Python itself starts and ends as ever, with the streams that it finds."""
    name = f'dsprof() {{ "{sys.executable}" -m dsprof "$@"; }}; '
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", name + script],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "80", "PYTHONPATH": str(ROOT)} | environment,
    )


@pytest.mark.parametrize(
    ("command", "reader"),
    [
        ("report {}", "true"),
        ("report {} --json -", "true"),
        ("report {} --json -", "head -c 10"),
        ("live {} --once", "true"),
        ("live {} --json", "true"),
        ("live {} --json", "head -c 10"),
    ],
)
def test_a_reader_that_leaves_early_is_no_error(command: str, reader: str) -> None:
    done = shell(f"dsprof {command.format(QUIET)} | {reader}")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_gate_trips_even_if_nobody_reads_on() -> None:
    assert anew(f"dsprof report {SEED} --fail-on warning | true").returncode == 3


FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@FULL
@pytest.mark.parametrize(
    ("command", "where"),
    [
        (f"report {QUIET} > /dev/full", "standard output: "),
        (f"report {QUIET} --json - > /dev/full", "standard output: "),
        (f"live {QUIET} --once > /dev/full", "standard output: "),
        (f"live {QUIET} --json > /dev/full", "standard output: "),
        (f"report {QUIET} --json /dev/full > /dev/null", "/dev/full: "),
        (f"report {QUIET} -o /dev/full > /dev/null", "/dev/full: "),
        ("--help > /dev/full", ""),
        ("--version > /dev/full", ""),
    ],
)
def test_a_full_disk_is_one_line(command: str, where: str) -> None:
    done = (shell if where else anew)(f"dsprof {command}")
    assert done.returncode == 1
    assert done.stderr.startswith(f"dsprof: {where}")
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


@FULL
@pytest.mark.parametrize("ending", ["parquet", "csv", "json", "jsonl", "perfetto.json"])
def test_an_export_to_a_full_disk_is_one_line(cli: Dsprof, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"run.{ending}"
    file.symlink_to("/dev/full")
    told_off(cli("export", SEED, "-o", file), f"dsprof: {file}: cannot be written")


@pytest.mark.parametrize(
    ("closed", "code"),
    [(f"report {SEED} >&-", 0), ("report nope.log 2>&-", 1), ("report - <&-", 1)],
)
def test_a_closed_stream_ends_nothing_early(closed: str, code: int) -> None:
    done = anew(f"dsprof {closed}")
    assert done.returncode == code
    assert done.stderr == "" or done.stderr.startswith("dsprof: standard input: is empty")


def test_control_c_is_one_line(tmp_path: Path) -> None:
    pipe = tmp_path / "growing.log"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "dsprof", "report", str(pipe)]
    with (
        heeding_sigint(),
        subprocess.Popen(command, stderr=subprocess.PIPE, cwd=ROOT, text=True) as reading,
        pipe.open("w") as writer,  # opens when the reader does
    ):
        writer.write("a first line\n")
        writer.flush()
        reading.send_signal(signal.SIGINT)
        _, errors = reading.communicate(timeout=60)
    assert (reading.returncode, errors) == (130, "dsprof: interrupted\n")


PLANT = """
import sys
from dsprof.cli import app, main
@app.command()
def mistaken():
    raise KeyError("a planted\\nmistake" + " and more" * 40)
sys.argv = ["dsprof", "mistaken"]
main()
"""


def test_a_bug_asks_for_a_report_in_one_line_and_shows_the_traceback_if_asked() -> None:
    command = [sys.executable, "-c", PLANT]
    plain = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert plain.returncode == 1
    assert plain.stderr.startswith("dsprof: bug: KeyError: 'a planted")
    assert "… at <string>:6 (please report it" in plain.stderr
    assert "DSPROF_TRACEBACK=1" in plain.stderr
    assert plain.stderr.count("\n") == 1
    unasked = os.environ | {"DSPROF_TRACEBACK": "0"}
    none = subprocess.run(command, capture_output=True, text=True, check=False, env=unasked)
    assert none.stderr == plain.stderr
    asked = os.environ | {"DSPROF_TRACEBACK": "1"}
    full = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=asked)
    assert "Traceback (most recent call last)" in full.stderr


TIMERS = "time (ms) | fwd: {0} | bwd: 35.00 | bwd_inner: {0} | bwd_allreduce: 2.00 | step: 5.00"


@pytest.mark.parametrize("number", ["nan", "inf", "-5", "9" * 60, "9" * 10_000, "1e308"])
def test_an_absurd_timer_is_dropped_not_fatal(cli: Dsprof, tmp_path: Path, number: str) -> None:
    head = "[2026-11-21 05:52:{:02},{:03}] [INFO] [logging.py:107:log_dist] [Rank 0] rank=0 "
    lines = [
        head.format(*divmod(70 * n, 1000)) + TIMERS.format(number if n % 2 else "30.0")
        for n in range(30)
    ]
    (tmp_path / "absurd.log").write_text("\n".join(lines))
    done = cli("report", "absurd.log", "-o", "run.html", "--json", "run.json")
    assert (done.returncode, done.stderr) == (0, "page: run.html\n")
    assert re.search(r"Where a step goes   7[02]\.0 ms", done.stdout)
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("start", "columns", "terminal"),
    [
        (anew, "20", {"LC_ALL": "C"}),
        (shell, "20", {"PYTHONIOENCODING": "ascii"}),
        (shell, "40", {}),
        (shell, "200", {"PYTHONIOENCODING": "ascii"}),
    ],
)
def test_a_narrow_terminal_cuts_no_number(
    start: Callable[..., subprocess.CompletedProcess[str]], columns: str, terminal: dict[str, str]
) -> None:
    log = SAMPLES / "zero3_0.19.8.log"
    out = start(f"dsprof report {log}", COLUMNS=columns, TERM="dumb", **terminal).stdout
    assert re.search(r"(≥|>=)\d\.\d\d ms +1\d %", out)
    assert "?" not in out
    if int(columns) >= 40:
        assert max(map(len, out.splitlines())) <= int(columns)


def test_json_goes_to_a_file_beside_the_text_or_instead_of_it(cli: Dsprof, tmp_path: Path) -> None:
    both = cli("report", SEED, "--json", "run.json")
    assert both.stdout.startswith("76 % of a step")
    only = cli("report", SEED, "--json", "-")
    assert json.loads((tmp_path / "run.json").read_text()) == json.loads(only.stdout)


def test_the_page_is_one_file(cli: Dsprof, tmp_path: Path) -> None:
    done = cli("report", SEED, "-o", "run.html")
    assert done.returncode == 0
    assert "run.html" in done.stderr
    assert (tmp_path / "run.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_a_stated_link_speed_reaches_the_run(cli: Dsprof) -> None:
    told = json.loads(cli("report", SEED, "--link", "100Gb", "--json", "-").stdout)
    assert told["meta"]["link_bytes_per_second"] == 12.5e9


OWN = r"""
title = "Gizmo"
[[pattern]]
name = "heat"
about = "The gizmo's own loop."
needle = "gizmo turn "
regex = '''gizmo turn (?P<step>\d+): loss (?P<loss>[-+\w.]+)'''
place = "own"
[pattern.fields]
loss = "metric loss"
[[sample]]
line = "gizmo turn 3: loss 2.5"
events = [{ kind = "metric", name = "loss", value = 2.5, step = 3 }]
"""
OWN_TIMERS = """
title = "Gizmo"
[[pattern]]
name = "timers"
needle = "gizmo took "
place = "timer"
timers = true
[pattern.pairs]
separator = ";"
assign = "="
[timer]
fw = "forward"
bw = "backward"
[[timers]]
name = "gizmo"
all = ["forward", "backward", "bucket"]
sums = "step"
place = "end"
[timers.tree]
"forward" = "compute"
"backward" = "compute"
"backward/bucket" = "communication"
[[sample]]
line = "gizmo took fw=10.5; bw=30; bucket=12"
events = [
  { kind = "phase", name = "forward", raw = "fw", seconds = 0.0105, timers = "gizmo" },
  { kind = "phase", name = "backward", seconds = 0.03 },
  { kind = "phase", name = "bucket", seconds = 0.012 },
]
"""


def test_a_users_own_dialect_reads_a_log_that_nobody_else_does(cli: Dsprof, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "gizmo.toml").write_text(OWN)
    (tmp_path / "own.log").write_text(
        "gizmo turn 1: loss 2.5, heat: 1.5\ngizmo turn 2: loss 2.25, heat: 1.4\n"
    )
    told_off(cli("report", "own.log"), "own.log: 2 of its 2 lines look like metrics", "--unknown")
    read = cli("report", "own.log", "--parsers", "mine", "--json", "-")
    assert json.loads(read.stdout)["steps"]["loss"] == [2.5, 2.25]


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--json", "no/x.json"],
        ["report", "-o", "no/x.html"],
        ["export", "-o", "no/x.csv"],
    ],
)
def test_a_folder_to_write_to_that_does_not_exist_is_named(
    cli: Dsprof, arguments: list[str]
) -> None:
    command, *rest = arguments
    done = cli(command, SEED, *rest)
    assert done.returncode == 1
    file = rest[-1]
    assert done.stderr == (
        f"dsprof: {file}: cannot be written: there is no folder no "
        "(create it or choose another file)\n"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty"), (random.Random(7).randbytes(3000), "is a binary file, not a log")],
)
def test_shapes_of_what_is_no_log_are_an_error_like_its_report(
    cli: Dsprof, tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "no.log").write_bytes(content)
    told_off(cli("parsers", "--unknown", "no.log"), f"no.log: {said}")
    told_off(cli("report", "no.log"), f"no.log: {said}")


def test_a_folder_of_recordings_is_an_input_like_any_log(cli: Dsprof, tmp_path: Path) -> None:
    with closing(Writer.create(tmp_path / "run", {"rank": 0, "world": 1})) as writer:
        forward = writer.name("forward", class_="compute")
        for step in range(1, 4):
            begin = time.perf_counter_ns()
            writer.span(forward, begin, begin + 70_000_000, step)
            writer.step(step, begin, begin + 100_000_000)
            writer.flush()
    told = json.loads(cli("report", "run", "--json", "-").stdout)
    assert told["steps"]["seconds"] == pytest.approx(0.1)
    assert told["steps"]["classes"]["compute"] == pytest.approx(0.07)
    assert told["coverage"] is None


# --- how it ends --------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "severity", "code"),
    [(SEED, "critical", 3), (DIED, "warning", 3), (QUIET, "critical", 4)],
)
def test_a_gate_trips_at_its_severity_and_admits_what_it_cannot_tell(
    cli: Dsprof, log: Path, severity: str, code: int
) -> None:
    assert cli("report", log, "--fail-on", severity).returncode == code


def two_ranks(folder: Path, reducing: int) -> Path:
    """A recording of steps of 100 ms, of which all-reducing takes that many."""
    ends = {"forward": 93 - reducing, "all_reduce_in_backward": 93, "step": 100}
    classes = ("compute", "communication", "optimizer")
    for rank in (0, 1):
        told = {"rank": rank, "host": "worker-1", "world": 2}
        with closing(Writer.create(folder, told)) as writer:
            for step in range(1, 31):
                begin = at = step * 100_000_000
                for (name, end), class_ in zip(ends.items(), classes, strict=True):
                    until = begin + end * 1_000_000
                    writer.span(writer.name(name, class_=class_), at, until, step)
                    at = until
                writer.step(step, begin, at)
    return folder


def test_a_gate_above_every_finding_lets_pass(cli: Dsprof, tmp_path: Path) -> None:
    run = two_ranks(tmp_path / "run", reducing=20)
    assert cli("report", run, "--fail-on", "warning").returncode == 3
    done = cli("report", run, "--fail-on", "critical")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_gate_does_not_trip_because_nothing_is_wrong(cli: Dsprof, tmp_path: Path) -> None:
    done = cli("report", two_ranks(tmp_path / "run", reducing=8), "--fail-on", "info")
    assert done.stdout.startswith("Nothing holds this run back")
    assert done.returncode == 0


def test_a_gate_does_not_pass_steps_of_which_only_the_length_is_known(
    cli: Dsprof, tmp_path: Path
) -> None:
    rate = "loss: 1.5000 iter time (s): 0.250 samples/sec: 32.000"
    (tmp_path / "rates.log").write_text("".join(f"steps: {n} {rate}\n" for n in range(1, 31)))
    done = cli("report", "rates.log", "--fail-on", "critical")
    assert "A step takes 250 ms; where that goes is unknown" in done.stdout
    assert done.returncode == 4


def test_an_export_says_of_which_of_several_jobs_it_is(cli: Dsprof, tmp_path: Path) -> None:
    logs = [SEED.with_name(f"{name}_0.19.8.log") for name in ("zero1_accumulation", "zero3")]
    done = cli("export", *logs, "-o", tmp_path / "run.csv")
    said = f"dsprof: {logs[0]}: one of 2 jobs: zero_stage is 1 in one and 3 in another"
    assert done.stderr.strip() == f"{said}; the others are left out"
    assert "zero3" not in (tmp_path / "run.csv").read_text()
    again = cli("export", logs[0], "-o", tmp_path / "alone.csv")
    assert again.stderr == ""
    assert (tmp_path / "alone.csv").read_text() == (tmp_path / "run.csv").read_text()


def test_a_gate_does_not_pass_jobs_that_nobody_judged(cli: Dsprof) -> None:
    logs = [SEED.with_name(f"{name}_0.19.8.log") for name in ("zero3", "pipeline")]
    done = cli("report", *logs, "--fail-on", "critical")
    assert done.returncode == 4
    assert "cannot tell: the files are of several jobs, of which only one was judged" in done.stderr


def test_a_gate_does_not_pass_steps_of_which_most_may_be_communication(cli: Dsprof) -> None:
    done = cli("report", SEED.with_name("zero3_0.19.8.log"), "--fail-on", "critical")
    said = "--fail-on critical: cannot tell: up to 85 % of a step may be communication"
    assert done.stderr == f"dsprof: {said} (exit code 4)\n"
    assert done.returncode == 4


def test_a_gate_does_not_pass_a_first_step_alone(cli: Dsprof, tmp_path: Path) -> None:
    with closing(Writer.create(tmp_path / "run", {"rank": 0, "world": 1})) as writer:
        begin = time.perf_counter_ns()
        writer.span(writer.name("forward", class_="compute"), begin, begin + 95_000_000, 1)
        writer.step(1, begin, begin + 100_000_000)
    done = cli("report", "run", "--fail-on", "critical")
    assert done.returncode == 4
    assert "the only step with a time is the first of its launch" in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ["report"],
        ["report", SEED, "--link", "fast"],
        ["report", SEED, "--link", "100"],
        ["report", SEED, "--link", "100b"],
        ["report", SEED, "--fail-on", "doom"],
        ["report", SEED, "--no-such-option"],
        ["live", SEED, "--json", "--every", "inf"],
        ["no-such-command"],
    ],
)
def test_wrong_usage_is_code_2(cli: Dsprof, wrong: list[object]) -> None:
    done = cli(*wrong)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


# --- bad input: one clear line, code 1 ------------------------------------------


def test_a_missing_file_is_named(cli: Dsprof) -> None:
    told_off(cli("report", "nope.log"), "nope.log", "no such file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_named(cli: Dsprof, tmp_path: Path) -> None:
    (tmp_path / "secret.log").touch(mode=0o000)
    told_off(cli("report", "secret.log"), "secret.log", "cannot be read")


def test_what_is_no_file_is_named(cli: Dsprof, tmp_path: Path) -> None:
    loop = tmp_path / "loop.log"
    loop.symlink_to(loop)
    told_off(cli("report", "loop.log"), "loop.log")


def test_a_folder_without_logs_is_named(cli: Dsprof, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "weights.bin").write_bytes(b"\x00")
    told_off(cli("report", "runs"), "runs", "holds no logs")


@pytest.mark.parametrize("head", [b"\x7fELF\x02\x01\x01", b"\x89PNG\r\n\x1a\n", bytes(range(256))])
def test_a_binary_file_is_refused(cli: Dsprof, tmp_path: Path, head: bytes) -> None:
    (tmp_path / "model.log").write_bytes(head + os.urandom(20_000))
    told_off(cli("report", "model.log"), "model.log")


def test_an_empty_log_is_called_empty(cli: Dsprof, tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    told_off(cli("report", "empty.log"), "empty.log", "is empty")


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("Dear diary,\ntoday nothing was trained.\n", "its 2 lines"),
        ("hello", "its only line"),
        ("import os\n" * 300, "its 300 lines"),
        ("\0" * 5000, "its only line"),
    ],
)
def test_a_file_without_metrics_says_which_file_to_name(
    cli: Dsprof, tmp_path: Path, content: str, lines: str
) -> None:
    (tmp_path / "diary.log").write_text(content)
    done = cli("report", "diary.log")
    told_off(
        done,
        f"diary.log: no metric, timer or failure that dsprof knows is in {lines}",
        "job's own output",
    )


def test_nothing_on_standard_input_is_called_so(cli: Dsprof) -> None:
    told_off(cli("report", "-", input=""), "standard input: is empty")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_a_log_that_windows_redirected_is_read(cli: Dsprof, tmp_path: Path, encoding: str) -> None:
    (tmp_path / "run.log").write_bytes(SEED.read_text().replace("\n", "\r\n").encode(encoding))
    assert cli("report", "run.log").stdout.startswith("76 % of a step")


def test_a_damaged_archive_is_named(cli: Dsprof, tmp_path: Path) -> None:
    (tmp_path / "run.log.gz").write_bytes(gzip.compress(SEED.read_bytes())[:12] + b"garbage")
    told_off(cli("report", "run.log.gz"), "run.log.gz")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("title = ", ("bad.toml", "TOML")),
        ('[[pattern]]\nname = "x"\n', ("bad.toml", "'x'")),
        (OWN.replace("(?P<loss>", "(?P<loss"), ("bad.toml", "'heat'")),
        (OWN + "colour = 3\n", ("bad.toml",)),
    ],
)
def test_a_bad_grammar_file_is_named_with_its_fault(
    cli: Dsprof, tmp_path: Path, content: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "bad.toml").write_text(content)
    told_off(cli("report", SEED, "--parsers", "mine"), *words)


@pytest.mark.parametrize("args", [("report", SEED, "--parsers"), ("parsers", "--check")])
def test_a_grammar_folder_that_is_missing_or_empty_is_named(
    cli: Dsprof, tmp_path: Path, args: tuple[object, ...]
) -> None:
    told_off(cli(*args, "nowhere"), "nowhere", "no such folder")
    (tmp_path / "mine").mkdir()
    told_off(cli(*args, "mine"), "mine", "no dialect files")


@pytest.mark.parametrize("option", ["--json", "-o"])
def test_a_result_that_cannot_be_written_is_named(cli: Dsprof, option: str) -> None:
    done = cli("report", SEED, option, "no/such/folder/run.out")
    assert done.returncode == 1
    assert "no/such/folder/run.out: cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_half_understood_log_gives_what_is_there(cli: Dsprof, tmp_path: Path) -> None:
    lines = SEED.read_text().splitlines()
    half = [line for pair in zip(lines, ["gizmo_heat: 3.25"] * 20, strict=False) for line in pair]
    (tmp_path / "half.log").write_text("\n".join(half))
    done = cli("report", "half.log")
    assert done.returncode == 0
    assert done.stdout.startswith("76 % of a step")
    assert "gizmo_heat: #.#" in done.stdout


# --- parsers --------------------------------------------------------------------


def test_parsers_lists_every_dialect_file(cli: Dsprof) -> None:
    out = cli("parsers").stdout
    assert [f.name for f in (ROOT / "parsers").glob("*.toml") if f.name not in out] == []


def test_parsers_says_where_the_manual_of_dialects_lies(cli: Dsprof) -> None:
    told = cli("parsers").stdout.rpartition("How to write one: ")[2]
    assert Path("".join(told.split())).is_file()


def test_a_log_without_a_line_like_a_metric_is_said_to_have_none(
    cli: Dsprof, tmp_path: Path
) -> None:
    (tmp_path / "odd.log").write_text("hello\nworld\n")
    assert cli("parsers", "--unknown", "odd.log").stdout == (
        "None of its 2 lines looks like a metric\n"
    )


def test_parsers_shows_the_shapes_that_nobody_reads(cli: Dsprof, tmp_path: Path) -> None:
    (tmp_path / "odd.log").write_text("gizmo_heat: 3.25 units\ngizmo_heat: 11.5 units\n")
    out = cli("parsers", "--unknown", "odd.log").stdout
    assert "0 of 2 lines that look like metrics are understood" in out
    assert "gizmo_heat: #.# units" in out
    assert "gizmo_heat: 3.25 units" in out
    assert "odd.log:1" in out


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (("", ""), 0, "Every sample reads as written"),
        (("value = 2.5, step = 3", "value = 2.5, step = 4"), 1, "step is 3, not 4"),
        (('line = "gizmo', 'line = "wizmo'), 1, "expects 1 events, read 0"),
        ((OWN[OWN.index("[[sample]]") :], ""), 1, "gizmo.heat: no sample shows it"),
    ],
)
def test_parsers_checks_a_folder_against_its_own_samples(
    cli: Dsprof, tmp_path: Path, change: tuple[str, str], code: int, said: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "gizmo.toml").write_text(OWN.replace(*change) if change[0] else OWN)
    done = cli("parsers", "--check", "mine")
    assert done.returncode == code
    assert said in " ".join(done.stdout.split())


def test_pairs_of_an_own_dialect_are_timers_if_their_pattern_says_so(
    cli: Dsprof, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "gizmo.toml").write_text(OWN_TIMERS)
    assert cli("parsers", "--check", "mine").returncode == 0
    line = "gizmo took fw=10.5; bw=30; bucket=12\n"
    (tmp_path / "run.log").write_text(line * 3)
    run = dsprof.load(str(tmp_path / "run.log"), parsers=[tmp_path / "mine"])
    assert set(run.events["timers"]) == {"gizmo"}
    assert run.phases.query("name == 'bucket'")["parent"].unique().tolist() == ["backward"]


# --- what it loads --------------------------------------------------------------


NAMES = [one.callback.__name__ for one in app.registered_commands if one.callback]


@pytest.mark.parametrize("command", NAMES)
def test_help_says_what_a_value_is_and_not_its_type_in_python(cli: Dsprof, command: str) -> None:
    said = cli(command, "--help").stdout
    assert "Options:" in said
    assert re.findall(r"<[^>]+>", said) == []


@pytest.mark.parametrize("args", [["--help"], ["report", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    code = f"""
import sys
sys.argv = ["dsprof", *{args!r}]
from dsprof.cli import main
try:
    main()
except SystemExit:
    pass
heavy = {{"pandas", "numpy", "pyarrow", "plotly", "rich", "scipy"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)


def test_a_report_in_the_terminal_loads_nothing_of_the_page() -> None:
    code = f"""
import sys
sys.argv = ["dsprof", "report", {str(SEED)!r}]
from dsprof.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
page = {{"plotly", "jinja2", "scipy", "torch", "tsdownsample"}} & set(sys.modules)
assert not page, page
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)


# --- attach -------------------------------------------------------------------


def test_attach_runs_the_command_and_ends_as_it_does(cli: Dsprof, tmp_path: Path) -> None:
    script = "import sys; print(sys.argv[1:]); sys.exit(7)"
    out = tmp_path / "run"
    done = cli("attach", "--out", str(out), "--", sys.executable, "-c", script, "--lr", "1")
    assert done.returncode == 7
    assert done.stdout == "['--lr', '1']\n"
    assert (out / ".attach" / "sitecustomize.py").is_file()


def test_an_option_that_attach_lacks_is_wrong_usage_and_one_of_the_command_is_the_commands(
    cli: Dsprof, tmp_path: Path
) -> None:
    done = cli("attach", "--output", str(tmp_path / "run"), "--", sys.executable, "-c", "pass")
    assert done.returncode == 2
    assert "No such option: --output" in done.stderr
    script = "import sys; print(sys.argv[1:])"
    told = ("--out", "theirs", "--version", "-x")
    done = cli("attach", "--out", str(tmp_path / "run"), sys.executable, "-c", script, *told)
    assert done.returncode == 0
    assert done.stdout == f"{list(told)}\n"


def test_a_command_that_is_not_there_is_named(cli: Dsprof, tmp_path: Path) -> None:
    done = cli("attach", "--out", str(tmp_path), "--", "no-such-launcher", "train.py")
    told_off(done, "no-such-launcher")


def _dangling(folder: Path) -> None:
    (folder / "x").symlink_to(folder / "nowhere.log")


def _device(folder: Path) -> None:
    (folder / "x").symlink_to("/dev/zero")  # would never end


def _images(folder: Path) -> None:
    (folder / "x").mkdir()
    (folder / "x" / "curve.png").write_bytes(b"\x89PNG\r\n\x1a\n")


def _forbidden(folder: Path) -> None:
    (folder / "x").mkdir(mode=0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_dangling, "is a link that leads nowhere (name the file itself)"),
        (_device, "is a device, not a log (name a file, or - for standard input)"),
        (_images, "the folder holds no logs and no recordings (logs end in .log, "),
        (_forbidden, "the folder cannot be read (ask for the right to read it)"),
    ],
)
def test_what_is_no_log_is_named_with_a_way_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
    said: str,
) -> None:
    make(tmp_path)
    if make is _forbidden:  # nothing is forbidden to root
        monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(DsprofError) as raised:
        load(tmp_path / "x")
    assert str(raised.value).startswith(f"{tmp_path / 'x'}: {said}")


def test_a_mistake_in_a_dialect_file_says_where_the_rules_are(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('title = "x', encoding="utf-8")
    with pytest.raises(
        DsprofError, match=r"mine.toml: is not valid TOML.*\(see parsers/README.md\)$"
    ):
        load(SEED, parsers=[tmp_path])


@pytest.mark.parametrize("option", ["-o", "--json"])
def test_what_was_read_is_not_written_over(cli: Dsprof, tmp_path: Path, option: str) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(SEED.read_bytes())
    (tmp_path / "other.html").symlink_to(log)
    done = cli("report", log, option, tmp_path / "other.html")
    assert done.returncode == 1
    assert "other.html: is what was read (choose another file" in done.stderr
    assert log.read_bytes() == SEED.read_bytes()


def test_a_table_is_not_written_over_what_was_read(cli: Dsprof, tmp_path: Path) -> None:
    log = tmp_path / "run.json"
    log.write_bytes(SEED.read_bytes())
    assert cli("export", log, "-o", log).returncode == 1
    assert log.read_bytes() == SEED.read_bytes()
