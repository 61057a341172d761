"""Whatever ends a process or a disk, what was written stays readable."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from dsprof.recording import Recordings, RowKind, Writer, read_folder, read_rows, ring
from dsprof.recording.layout import NAME_BITS, ROW
from dsprof.recording.stream import Stream
from tests.recording.recorded import (
    MS,
    SPANS,
    events,
    follow,
    frame,
    header,
    record,
    step_numbers,
    write_steps,
)

TraceFunction = Callable[[FrameType, str, Any], Any]
ROOT = Path(__file__).parent.parent.parent

#: Writes steps at full speed and says after each that it is in the file.
WRITER = """
import os, sys
from dsprof.recording import Writer
from tests.recording.recorded import header, write_steps
writer = Writer.create(sys.argv[1], header(), keep_bytes=int(sys.argv[2]))
gather = writer.name("all_gather")
for step in range(1, 10**9):
    writer.in_flight(gather, step)
    write_steps(writer, step, step)
    os.write(1, step.to_bytes(8, "little"))
"""

#: The same every 5 ms, with the moment at which each step ended.
PACED = """
import os, sys, time
from dsprof.recording import Writer
from tests.recording.recorded import header
writer = Writer.create(sys.argv[1], header())
forward = writer.name("forward")
for step in range(1, 10**9):
    time.sleep(0.005)
    end = time.perf_counter_ns()
    writer.span(forward, end - 1000, end, step)
    writer.step(step, end - 1000, end)
    writer.flush()
"""


def start(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


def acknowledged(process: subprocess.Popen[bytes], first: bytes) -> int:
    """The last step that the writer said is in the file."""
    assert process.stdout is not None
    said = first + process.stdout.read()
    whole = len(said) // 8 * 8
    return int.from_bytes(said[whole - 8 : whole], "little")


@pytest.mark.parametrize("round_", range(30))
def test_a_kill_at_any_moment_loses_at_most_the_step_under_way(tmp_path: Path, round_: int) -> None:
    keep = (256 << 20) if round_ % 2 else (64 << 10)  # every other one turns its ring all the time
    process = start(WRITER, tmp_path, keep)
    assert process.stdout is not None
    first = process.stdout.read(8)
    time.sleep(random.Random(round_).uniform(0.0, 0.15))
    process.kill()
    last = acknowledged(process, first)
    process.wait()

    recordings = Recordings([tmp_path])
    found = follow(recordings)
    steps = step_numbers(found)
    assert steps == list(range(1, len(steps) + 1))
    assert last <= len(steps) <= last + 1
    spans = frame(read_rows(RowKind.SPAN, tmp_path))
    whole = spans[spans["step"] <= last].groupby("step").size()
    assert set(whole) <= {SPANS}
    assert whole.index.max() == last
    told = recordings.facts()["recordings"][0]
    assert not told["ended"]
    flying = told["in_flight"]
    assert flying is None or flying["name"] == "all_gather"
    assert flying is None or last <= flying["seq"] <= last + 2


def test_a_follower_sees_every_step_while_the_job_goes_on(tmp_path: Path) -> None:
    process = start(PACED, tmp_path)
    recordings = Recordings([tmp_path])
    seen: list[int] = []
    deadline = time.monotonic() + 60
    try:
        while len(seen) < 200 and time.monotonic() < deadline:
            seen += step_numbers(follow(recordings))
            time.sleep(0.02)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 200


def test_a_fork_writes_nothing_into_its_parents_recording(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 2)
    writer.in_flight(writer.name("forward"), 5)
    size = writer.path.stat().st_size
    child = os.fork()
    if child == 0:
        try:
            writer.in_flight(writer.name("barrier"), 99)
            write_steps(writer, 3, 3)
            writer.close()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a child of a test must not run the tests that follow
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert writer.path.stat().st_size == size
    recordings = Recordings([tmp_path])
    recordings.follow()
    flying = recordings.facts()["recordings"][0]["in_flight"]
    assert (flying["name"], flying["seq"]) == ("forward", 5)
    write_steps(writer, 3, 3)
    writer.close()
    assert step_numbers(events(tmp_path)) == [1, 2, 3]


def test_steps_are_in_the_file_without_a_call_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call costs a short step more than all its rows."""
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 1)  # which maps the file's end
    with monkeypatch.context() as no:
        no.setattr(os, "pwrite", pytest.fail)
        write_steps(writer, 2, 9)
    assert step_numbers(events(tmp_path)) == list(range(1, 10))
    writer.close()


def test_of_a_store_that_is_cut_short_nothing_is_read(tmp_path: Path) -> None:
    """All but the first byte is there: the next store begins anew."""
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 2)

    class Killed:
        def __init__(self) -> None:
            self.map = writer.ring._mapped._map  # type: ignore[union-attr]

        def __setitem__(self, place: int | slice, what: Any) -> None:
            if isinstance(place, int):
                raise KeyboardInterrupt
            self.map[place] = what

    assert writer.ring._mapped is not None
    whole, killed = writer.ring._mapped._map, Killed()
    writer.ring._mapped._map = killed  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        write_steps(writer, 3, 3)
    assert step_numbers(events(tmp_path)) == [1, 2]
    writer.ring._mapped._map = whole
    writer.metric(writer.name("loss"), 1.0, 4)  # fewer rows than those of before
    writer.flush()
    found = events(tmp_path)
    assert step_numbers(found) == [1, 2]
    assert found["step"].max() == 4
    assert set(found.loc[found["step"] == 4, "name"]) == {"loss"}
    assert 3 not in set(found["step"].dropna())
    writer.close()


def test_a_file_that_is_stored_into_has_been_written_a_second_ago_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever follows asks the file system, which hears of no store."""
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 1)
    os.utime(writer.path, (0, 0))
    monkeypatch.setattr(ring, "TOUCHED", 0)
    write_steps(writer, 2, 2)
    assert abs(writer.path.stat().st_mtime - time.time()) < 60
    writer.close()


def test_zeros_behind_the_last_row_are_no_rows_of_a_file_that_is_read_from_its_end(
    tmp_path: Path,
) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 40)
    stream = Stream(writer.path)
    rows = b"".join(stream.skip(0, 64 * ROW))
    rest = b"".join(portion.rows for portion in stream.read())
    assert len(rest) == 64 * ROW
    assert rows + rest == writer.path.read_bytes()[stream._rows_at :].rstrip(b"\0").ljust(
        len(rows + rest), b"\0"
    )
    stream.close()
    writer.close()


def test_signals_in_the_middle_of_writing_tear_nothing(tmp_path: Path) -> None:
    """A handler flushes too, as one for SIGTERM would."""
    writer = Writer.create(tmp_path, header())
    count = 0

    def handler(*_: object) -> None:
        nonlocal count
        count += 1
        writer.flush()

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0005)
    try:
        write_steps(writer, 1, 2000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    writer.close()
    assert count > 20
    assert step_numbers(events(tmp_path)) == list(range(1, 2001))
    spans = frame(read_rows(RowKind.SPAN, tmp_path))
    assert set(spans.groupby("step").size()) == {SPANS}


def test_an_interrupt_at_any_line_of_the_writer_loses_that_step_only(tmp_path: Path) -> None:
    """Ctrl-C in the second of four steps; names that were on their way come again."""
    for stop in itertools.count(1):
        folder = tmp_path / str(stop)
        writer = Writer.create(folder, header())
        write_steps(writer, 1, 1)
        interrupted = _interrupted_at(stop, writer)
        write_steps(writer, 3, 4)
        writer.close()
        found = events(folder)
        assert {1, 3, 4} <= set(step_numbers(found)), stop
        assert found.loc[found["line"] > 0, "name"].notna().all()
        if not interrupted:
            break
    assert stop > 100


def _interrupted_at(stop: int, writer: Writer) -> bool:
    """Write step 2, up to its `stop`th line of the writer's code."""
    lines = 0

    def interrupt(frame_: FrameType, event: str, _: object) -> TraceFunction | None:
        nonlocal lines
        if not frame_.f_code.co_filename.endswith(("writer.py", "ring.py")):
            return None
        lines += event == "line"
        if lines == stop and event == "line":
            raise KeyboardInterrupt
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        writer.metric(writer.name("a new one"), 1.0, 2)
        write_steps(writer, 2, 2)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_a_close_that_interrupts_a_flush_leaves_it_its_file(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 1)
    writer._turns.append("a flush")
    writer.close()
    writer._turns.clear()
    write_steps(writer, 2, 2)
    writer.close()
    assert step_numbers(events(tmp_path)) == [1, 2]


def test_a_flush_that_a_close_interrupted_closes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a signal handler detaches."""
    writer = Writer.create(tmp_path, header())
    append = writer.ring.append

    def interrupted(*rows: bytes) -> None:
        monkeypatch.undo()
        writer.close()
        assert writer.ring.is_open
        append(*rows)

    monkeypatch.setattr(writer.ring, "append", interrupted)
    write_steps(writer, 1, 1)
    assert not writer.ring.is_open
    assert step_numbers(events(tmp_path)) == [1]
    assert len(read_rows(RowKind.END, tmp_path)) == 1


def test_threads_may_record_while_another_one_flushes(tmp_path: Path) -> None:
    import threading

    writer = Writer.create(tmp_path, header())

    def work(number: int) -> None:
        for i in range(2000):
            writer.span(writer.name(f"phase {i % 50}"), i, i + 1, i, thread=number)
            if i % 100 == 0:
                writer.flush()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    spans = frame(read_rows(RowKind.SPAN, tmp_path))
    assert len(spans) == 8000
    assert spans["name"].notna().all()
    assert set(spans.groupby(["thread", "step"]).size()) == {1}


def test_closing_twice_and_recording_afterwards_do_nothing(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 1)
    writer.close()
    size = writer.path.stat().st_size
    writer.close()
    write_steps(writer, 2, 2)
    writer.in_flight(1, 2)
    assert writer.path.stat().st_size == size
    assert writer.spans == []


def test_the_in_flight_cell_is_seen_at_once_and_cleared_by_closing(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 1)
    recordings = Recordings([tmp_path])
    recordings.follow()
    now = time.time_ns()
    writer.in_flight(writer.name("backward"), 2**43, time.perf_counter_ns())
    flying = recordings.facts()["recordings"][0]["in_flight"]
    assert (flying["name"], flying["seq"]) == ("backward", 2**43)
    assert abs(flying["at"] - now) < 5_000 * MS
    writer.close()
    assert recordings.facts()["recordings"][0]["in_flight"] is None


class _Meeting(list[object]):
    """The turns of a writer whose flush ends in another thread just when `close` has seen it."""

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self.writer, self.met = writer, False

    def __contains__(self, turn: object) -> bool:
        if not self.met:
            self.met = True
            self.writer.close()  # what the flush does at its end: it finds the other's turn
        return super().__contains__(turn)

    def append(self, turn: object) -> None:
        if not self.met and not self:
            super().append(self)  # the flush; gone when it closes
        super().append(turn)

    def __getitem__(self, place: Any) -> Any:
        first = super().__getitem__(place)
        if first is self:
            self.remove(self)
        return first


def test_of_a_flush_and_a_close_that_meet_one_closes(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 2)
    writer._turns = _Meeting(writer)
    writer.close()
    assert not writer.ring.is_open
    assert Recordings([tmp_path]).follow().num_rows
    recordings = Recordings([tmp_path])
    recordings.follow()
    assert recordings.facts()["recordings"][0]["ended"]


def test_a_damaged_cell_tells_no_times(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 1)
    for word in range(3):
        writer.ring.cell[word] = (1 << 64) - (1 << NAME_BITS) | writer.name("backward")
    facts = Recordings([tmp_path])
    facts.follow()
    process = facts.facts()["recordings"][0]
    assert (process["in_flight"]["at"], process["phase"]) == (None, None)


def test_the_writer_needs_the_standard_library_only(tmp_path: Path) -> None:
    code = f"""
import sys
from dsprof.recording import Writer
Writer.create({str(tmp_path)!r}, {{}}).close()
print(*sorted({{name.split(".")[0] for name in sys.modules}} & {{"numpy", "pyarrow", "pandas"}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
    assert read_folder(tmp_path).num_rows == 0


def test_a_recording_is_read_while_it_is_copied_over(tmp_path: Path) -> None:
    """Someone's rsync replaces the file: what a reader has open stays what it was."""
    path = record(tmp_path, 3)
    recordings = Recordings([tmp_path])
    assert step_numbers(follow(recordings)) == [1, 2, 3]
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    assert len(follow(recordings)) == 0
