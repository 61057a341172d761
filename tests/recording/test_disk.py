"""Disks that are full, folders that are gone: one error says so, what was written is readable."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dsprof.errors import DsprofError
from dsprof.recording import Recordings, Writer, ring
from dsprof.recording.layout import ROW, part_of
from tests.recording.recorded import events, follow, header, step_numbers, write_steps


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may grow beyond 20,000 bytes: a row ends in the middle there."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
def test_a_write_that_fails_midway_leaves_nothing_of_it(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    with pytest.raises(DsprofError, match="cannot be written: File too large"):
        write_steps(writer, 1, 1000)
    steps = step_numbers(events(tmp_path))
    assert steps == list(range(1, len(steps) + 1))
    assert writer.path.stat().st_size % ROW == 0  # though the limit is no row's boundary

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (before[1], before[1]))
    write_steps(writer, 500, 510)
    writer.close()
    found = events(tmp_path)
    assert step_numbers(found) == [*steps, *range(500, 511)]
    assert found.loc[found["line"] > 0, "name"].notna().all()


def closed(writer: Writer) -> int:
    """Its descriptor, as what closes all of them leaves it: the next file gets its number."""
    held = Path("/proc/self/fd").iterdir()
    ours = [int(fd.name) for fd in held if fd.is_symlink() and fd.readlink() == writer.path]
    number = min(ours)  # the map of the in-flight cell has one of its own
    os.close(number)
    return number


def test_a_file_that_got_the_number_of_our_descriptor_is_not_written_to(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 2)
    number = closed(writer)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(b"weights")
    with checkpoint.open("r+b") as theirs:
        assert theirs.fileno() == number
        write_steps(writer, 3, 4)
        writer.close()
        assert os.fstat(number).st_size == len(b"weights")
    assert checkpoint.read_bytes() == b"weights"
    assert step_numbers(events(tmp_path)) == [1, 2, 3, 4]


def test_closing_leaves_alone_what_got_the_number_of_our_descriptor(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    writer.flush()
    number = closed(writer)
    writer.path.rename(tmp_path / "moved")
    with (tmp_path / "checkpoint").open("wb") as theirs:
        assert theirs.fileno() == number
        with pytest.raises(DsprofError):
            writer.close()
        theirs.write(b"weights")
    assert (tmp_path / "checkpoint").read_bytes() == b"weights"


def all_closed(writer: Writer) -> list[int]:
    """Every descriptor of its file, those of maps too."""
    held = Path("/proc/self/fd").iterdir()
    ours = [int(fd.name) for fd in held if fd.is_symlink() and fd.readlink() == writer.path]
    for number in ours:
        os.close(number)
    return ours


@pytest.mark.parametrize("steps", [0, 2])
def test_nothing_that_got_the_number_of_a_descriptor_is_closed(tmp_path: Path, steps: int) -> None:
    """Before Python 3.13 each map has one of its own. Steps may follow before the end."""
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 2)
    numbers = all_closed(writer)
    theirs = [os.open(tmp_path / f"{number}", os.O_RDWR | os.O_CREAT) for number in numbers]
    assert sorted(theirs) == sorted(numbers)
    write_steps(writer, 3, 2 + steps)
    writer.close()
    del writer
    for number in theirs:
        os.close(number)  # raises if it is closed already
    assert step_numbers(events(tmp_path)) == list(range(1, 3 + steps))


def test_a_ring_that_turns_cuts_no_file_that_got_the_number_of_its_descriptor(
    tmp_path: Path,
) -> None:
    writer = Writer.create(tmp_path / "run", header(), keep_bytes=8 * 4096)
    write_steps(writer, 1, 2)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(bytes(1 << 20))
    numbers = all_closed(writer)
    theirs = [os.open(checkpoint, os.O_RDWR) for _ in numbers]
    write_steps(writer, 3, 200)
    assert part_of(writer.path.name) > 0
    writer.close()
    for number in theirs:
        os.close(number)
    assert checkpoint.stat().st_size == 1 << 20
    assert step_numbers(events(tmp_path / "run")) == list(range(1, 201))


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 128 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can be mounted by root alone")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_named_and_what_fits_is_readable(full_disk: Path) -> None:
    writer = Writer.create(full_disk, header())
    with pytest.raises(DsprofError, match="No space left on device"):
        write_steps(writer, 1, 10_000)
    steps = step_numbers(events(full_disk))
    assert len(steps) > 50
    assert steps == list(range(1, len(steps) + 1))
    with pytest.raises(DsprofError, match="No space left"):
        Writer.create(full_disk, header())
    assert len(list(full_disk.iterdir())) == 1  # what could not be begun is not left behind
    writer.close()  # there is room for the end


def test_a_recording_that_a_full_disk_ends_has_an_end(full_disk: Path) -> None:
    """Else its process would seem to have died there, though it trains on."""
    writer = Writer.create(full_disk, header())
    with suppress(DsprofError):
        write_steps(writer, 1, 10_000)
    before = step_numbers(events(full_disk))
    (full_disk / "another rank's").write_bytes(b"")
    with suppress(OSError), (full_disk / "another rank's").open("wb") as other:
        other.write(bytes(1 << 20))  # takes what the failed write gave back
    writer.last_words("recording-stopped", "the disk is full " * 100)
    writer.close()
    recordings = Recordings([full_disk / writer.path.name])
    found = follow(recordings)
    assert [one.ended for one in recordings.recordings] == [True]
    rows = events(full_disk / writer.path.name)
    assert rows.loc[rows["kind"] == "problem", "name"].tolist() == ["recording-stopped"]
    assert rows.loc[rows["kind"] == "problem", "text"].iloc[0].startswith("the disk is full")
    assert before == step_numbers(found) == list(range(1, len(before) + 1))
    assert before == sorted(set(rows["step"].dropna()))  # no other row tells of a step


def test_an_end_takes_the_last_rows_place_where_no_room_was_to_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring, "file_system", lambda _: "nfs4")  # each row is handed over
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 5)
    behind, write = writer.ring._bytes, os.pwrite

    def full(fd: int, data: bytes, offset: int) -> int:
        if offset + len(data) > behind:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DsprofError, match="No space left"):
        writer.close()
    recordings = Recordings([tmp_path])
    assert step_numbers(follow(recordings)) == [1, 2, 3, 4]
    assert recordings.recordings[0].ended


@pytest.mark.usefixtures("small_files")
def test_a_fork_of_a_recording_that_failed_does_not_end_it(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    with suppress(DsprofError):
        write_steps(writer, 1, 1000)
    before = writer.path.read_bytes()
    if not os.fork():
        os._exit(0)
    os.wait()
    assert writer.path.read_bytes() == before


def test_a_disk_that_fills_while_the_ring_turns_is_named(full_disk: Path) -> None:
    writer = Writer.create(full_disk, header(), keep_bytes=1 << 20)
    with pytest.raises(DsprofError, match="No space left on device"):
        write_steps(writer, 1, 10_000)
    assert len(step_numbers(events(full_disk))) > 50


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DsprofError, match=r"file/run: cannot be written: Not a directory"):
        Writer.create(tmp_path / "file" / "run", header())


def test_a_folder_that_does_not_take_files_is_named() -> None:
    with pytest.raises(DsprofError, match="cannot be written"):
        Writer.create("/proc/1", header())


def test_a_recording_that_was_removed_while_it_was_written_is_named(tmp_path: Path) -> None:
    """Nothing fails until the end: rows go to a file that has no name any more."""
    writer = Writer.create(tmp_path / "run", header())
    write_steps(writer, 1, 3)
    shutil.rmtree(tmp_path / "run")
    write_steps(writer, 4, 6)
    if not os.fork():
        os._exit(0)  # nothing to say for a data loader's worker
    os.wait()
    with pytest.raises(DsprofError, match=r"rank-00000.*: was removed while it was written"):
        writer.close()
    writer.close()


def test_a_ring_that_turns_in_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path / "run", header(), keep_bytes=64 << 10)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(DsprofError, match="cannot be written: No such file or directory"):
        write_steps(writer, 1, 1000)
    with suppress(DsprofError):
        writer.close()


@pytest.mark.parametrize("call", ["pwrite", "close"])
def test_a_quota_that_is_used_up_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Over a network the server may say so only when the file is closed."""
    monkeypatch.setattr(ring, "file_system", lambda _: "nfs4")
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 3)
    descriptor = writer.ring._fd

    def over(fd: int, *_: object) -> None:
        assert fd == descriptor
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with monkeypatch.context() as quota:
        quota.setattr(os, call, over)
        with pytest.raises(DsprofError, match="cannot be written: Disk quota exceeded"):
            writer.close()
    assert step_numbers(events(tmp_path)) == [1, 2, 3]
    writer.close()


def test_no_page_is_mapped_where_a_store_into_it_could_end_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operation in flight is unknown there, and nothing else."""
    monkeypatch.setattr(ring, "file_system", lambda _: "nfs4")
    writer = Writer.create(tmp_path, header())
    writer.in_flight(writer.name("barrier"), 7)
    write_steps(writer, 1, 3)
    recordings = Recordings([tmp_path])
    assert step_numbers(follow(recordings)) == [1, 2, 3]
    assert recordings.facts()["recordings"][0]["in_flight"] is None
    os.truncate(writer.path, 0)  # a mapped page would be gone with it: SIGBUS
    writer.in_flight(writer.name("barrier"), 8)


def test_the_file_system_of_a_folder_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "23 22 0:22 / /scratch rw - tmpfs none rw\n"
        "24 22 0:23 / /scratch rw,relatime shared:4 master:2 - nfs4 host:/scratch rw\n"
        "25 22 0:24 / /scratch/fast rw - xfs /dev/nvme0 rw\n"
        "26 22 0:25 / /mnt/my\\040share rw - nfs4 host:/share rw\n",
        encoding="ascii",
    )
    told = {
        place: ring.file_system(Path(place), mounts)
        for place in ("/home/me", "/scratch/run", "/scratch/fast/run", "/scratch/faster",
                      "/mnt/my share/run")
    }  # fmt: skip
    assert list(told.values()) == ["ext4", "nfs4", "xfs", "nfs4", "nfs4"]
    assert ring.file_system(tmp_path, tmp_path / "no such file") == ""
