"""Where logs are, and what is said when they are not."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from dsprof import logs
from dsprof.errors import DsprofError
from dsprof.logs.scanning import ranges
from dsprof.logs.scanning.scan import Scanner
from dsprof.logs.sources import source
from dsprof.logs.sources.source import named, open_bytes, sources_of
from tests.logs.reading import PFX, STEP, TIMERS, plain
from tests.recording.test_beginnings import stands

LINE = PFX + STEP % 1 + b"\n"


@pytest.mark.parametrize(
    ("name", "rank", "host"),
    [
        ("logs/x_rank3.log", 3, None),
        ("x.rank-12.txt.gz", 12, None),
        ("RANK7_stdout.txt", 7, None),
        ("worker-1.log", None, "worker-1"),
        ("node0_stdout.txt", None, "node0"),
        ("log.gpu-node12.err", None, "gpu-node12"),
        ("killed_rank_0.19.8.log", None, None),
        ("z2.log", None, None),
        ("run.log", None, None),
        ("slurm-4711.out", None, None),
    ],
)
def test_a_name_may_tell_the_rank_or_the_host(
    name: str, rank: int | None, host: str | None
) -> None:
    source = named(name)
    assert (source.rank, source.host) == (rank, host)


def test_what_a_name_tells_goes_to_rows_that_know_no_better(tmp_path: Path) -> None:
    for rank in (2, 3):
        text = b"[Rank 9] " + TIMERS + b"\n" + TIMERS + b"\n"
        (tmp_path / f"out_rank{rank}.log").write_bytes(text)
    (tmp_path / "worker-4.log").write_bytes(LINE)
    events = plain(logs.read([tmp_path]).events).to_pylist()
    assert {row["rank"] for row in events if row["kind"] == "phase"} == {2, 3, 9}
    assert {row["host"] for row in events if row["name"] == "skipped"} == {"worker-4"}


def test_a_folder_of_torchrun_names_the_rank_on_its_host_unless_lines_say_the_rank(
    tmp_path: Path,
) -> None:
    for local, text in enumerate((TIMERS, TIMERS, TIMERS + b"\n[rank9]: " + TIMERS)):
        folder = tmp_path / "none_a" / "attempt_0" / str(local)
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_bytes(text + b"\n")
    assert set(logs.read([tmp_path]).events["rank"].to_pylist()) == {0, 1, 9}


def test_folders_of_torchrun_on_several_hosts_name_no_rank(tmp_path: Path) -> None:
    for host in ("a", "b"):
        folder = tmp_path / host / "attempt_0" / "0"
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_bytes(TIMERS + b"\n")
    assert {source.local for source in sources_of([tmp_path])} == {None}
    assert {source.local for source in sources_of([tmp_path / "a"])} == {0}


def test_a_folder_is_searched_through_and_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("a.log", "deep/b.txt", "deep/er/c.out.gz", "model.bin", ".hidden.log"):
        (tmp_path / name).write_bytes(LINE)
    found = [Path(source.name).name for source in sources_of([tmp_path])]
    assert found == ["a.log", "b.txt", "c.out.gz"]


def test_a_glob_names_every_match_once(tmp_path: Path) -> None:
    for name in ("a1.log", "a2.log", "b.log"):
        (tmp_path / name).write_bytes(LINE)
    paths = [tmp_path / "a*.log", tmp_path / "a1.log"]
    assert [Path(s.name).name for s in sources_of(paths)] == ["a1.log", "a2.log"]


def test_several_files_are_one_run(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.log").write_bytes(PFX + STEP % number + b"\n")
    log = logs.read([tmp_path / "1.log", tmp_path / "2.log"])
    assert log.meta["sources"] == [str(tmp_path / "1.log"), str(tmp_path / "2.log")]
    assert len(set(log.events["record"].to_pylist())) == 2
    assert log.coverage.lines == 2


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINE)))
    assert logs.read(["-"]).events.num_rows == 3


def _faulty(tmp_path: Path, fault: str) -> Path:
    path = tmp_path / "run.log"
    if fault == "folder":
        path.mkdir()
    elif fault == "binary":
        path.write_bytes(b"\x7fELF\x02\x01" + bytes(100))
    elif fault == "archive":
        path.write_bytes(b"\x1f\x8b\x08" + b"\x07" * 50)
    elif fault == "zst":
        path.write_bytes(b"\x28\xb5\x2f\xfd" + b"\x07" * 50)
    return path


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("missing", "no such file"),
        ("folder", "holds no logs"),
        ("binary", "binary"),
        ("archive", "cannot be read beyond byte 0"),
        ("zst", "cannot be read beyond byte 0"),
    ],
)
def test_bad_input_is_one_clear_error(fault: str, words: str, tmp_path: Path) -> None:
    path = _faulty(tmp_path, fault)
    with pytest.raises(DsprofError, match=words) as caught:
        logs.read([path])
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_of_a_folder_of_a_job_that_never_began_to_train_it_is_told_where_ranks_stood(
    tmp_path: Path,
) -> None:
    stands(tmp_path, 0)
    with pytest.raises(DsprofError, match="Rank 0 stood in wait"):
        logs.read([tmp_path])


@pytest.mark.parametrize("name", ["logs.zip", "logs.tar", "logs.tar.gz", "logs.tar.xz"])
def test_an_archive_of_files_is_no_log_and_what_opens_it_is_said(name: str, tmp_path: Path) -> None:
    """Read as one, the files of two ranks would pass for two launches."""
    for rank in range(2):
        (tmp_path / f"rank{rank}.log").write_bytes(LINE)
    path = shutil.make_archive(
        str(tmp_path / "logs"), PACKS[name.removeprefix("logs")], tmp_path, "rank0.log"
    )
    with pytest.raises(DsprofError, match=r"is a (zip|tar) archive of files \(unpack it"):
        logs.read([path])


def test_a_file_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(LINE)

    def refuse(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(DsprofError, match="Permission denied"):
        open_bytes(str(path))


PACKS = {".zip": "zip", ".tar": "tar", ".tar.gz": "gztar", ".tar.xz": "xztar"}
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: zstandard.ZstdCompressor().compress(data),
}
NOISY = b"".join(PFX + STEP % n + b"\n" + b"%d noise\n" % (n * 7919) for n in range(1, 20_001))


@pytest.mark.parametrize("part", [0.5, 0.9])
@pytest.mark.parametrize("form", [*PACKERS])
def test_of_a_cut_archive_what_could_be_unpacked_counts(
    form: str, part: float, tmp_path: Path
) -> None:
    whole = PACKERS[form](NOISY)
    path = tmp_path / f"run.log.{form}"
    path.write_bytes(whole[: int(len(whole) * part)])
    log = logs.read([path])
    share = log.coverage.bytes / len(NOISY)
    assert share > (0.3 if form == "bz2" else part - 0.1)  # bz2 unpacks 900 KB or nothing
    assert share < 1
    assert log.events.num_rows > 0
    ((source, line, why),) = log.meta["faults"]
    assert (source, line) == (str(path), log.coverage.lines)
    assert why == f"cannot be read beyond byte {log.coverage.bytes:,}: the archive is cut short"


@pytest.mark.parametrize("form", ["gz", "bz2", "xz"])  # a block of zst is unpacked or not
def test_a_short_archive_that_lost_its_last_byte_is_read_to_its_end(
    form: str, tmp_path: Path
) -> None:
    path = tmp_path / f"run.log.{form}"
    path.write_bytes(PACKERS[form](LINE)[:-1])
    log = logs.read([path])
    assert len(log.meta["faults"]) == 1
    assert log.events.num_rows == 3


def test_one_broken_archive_of_a_folder_is_told_and_spoils_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(LINE)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(LINE)[:12])
    (tmp_path / "c.log").write_bytes(b"\x7fELF" + bytes(50))
    log = logs.read([tmp_path])
    assert log.events.num_rows == 3
    assert [Path(source).name for source, _, _ in log.meta["faults"]] == ["b.log.gz", "c.log"]


def test_what_follows_an_archive_is_told_unless_it_only_fills_up_a_block(tmp_path: Path) -> None:
    path = tmp_path / "run.log.gz"
    path.write_bytes(gzip.compress(LINE) + bytes(5000))
    assert logs.read([path]).meta["faults"] == ()
    path.write_bytes(gzip.compress(LINE) + b"and so on")
    log = logs.read([path])
    assert log.events.num_rows == 3
    assert "something else follows" in log.meta["faults"][0][2]


class _Failing(io.RawIOBase):
    """A file on a medium that fails at a byte."""

    def __init__(self, data: bytes, at: int) -> None:
        super().__init__()
        self.left = data[:at]

    def readable(self) -> bool:
        return True

    def readinto(self, into: object) -> int:
        view = memoryview(into)  # type: ignore[arg-type]
        if not self.left:
            raise OSError(errno.EIO, "Input/output error")
        part, self.left = self.left[: len(view)], self.left[len(view) :]
        view[: len(part)] = part
        return len(part)


def _fail(monkeypatch: pytest.MonkeyPatch, data: bytes, at: int) -> None:
    monkeypatch.setattr(source, "_opened", lambda _: io.BufferedReader(_Failing(data, at)))


def test_a_medium_that_fails_at_once_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(LINE)
    _fail(monkeypatch, LINE, 0)
    with pytest.raises(DsprofError, match="cannot be read: Input/output error") as caught:
        logs.read([path])
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("packed", [False, True])
def test_what_was_read_before_the_medium_failed_counts_and_the_place_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, packed: bool
) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(LINE)
    data = gzip.compress(NOISY) if packed else NOISY
    _fail(monkeypatch, data, len(data) // 2)
    log = logs.read([path])
    assert 0 < log.coverage.bytes < len(NOISY)
    assert log.events.num_rows > 10_000
    ((_, line, why),) = log.meta["faults"]
    assert line == log.coverage.lines
    assert why == f"cannot be read beyond byte {log.coverage.bytes:,}: Input/output error"


def test_a_process_that_cannot_read_its_range_leaves_the_file_to_one_that_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(NOISY)

    def fail(*_: object, **__: bool) -> Scanner:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(ranges, "_SIZE", len(NOISY) // 2 - 1)
    monkeypatch.setattr(logs, "_SHARE", 1)
    monkeypatch.setattr(logs, "scan_range", fail)
    _fail(monkeypatch, NOISY, 500_000)
    log = logs.read([path], processes=2)
    assert log.coverage.bytes == 500_000
    assert len(log.meta["faults"]) == 1


def test_a_compressed_standard_input_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(LINE))))
    assert logs.read(["-"]).events.num_rows == 3


def test_an_empty_log_has_no_events(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"")
    log = logs.read([path])
    assert (log.events.num_rows, log.coverage.lines, log.coverage.patterns) == (0, 0, {})


def test_remote_paths_are_read_through_fsspec() -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://run.log", "wb") as file:
        file.write(LINE)
    assert logs.read(["memory://run.log"]).events.num_rows == 3


def test_an_address_that_nobody_answers_is_told_with_the_reason_and_what_to_do() -> None:
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    with pytest.raises(DsprofError) as refused:
        open_bytes("http://127.0.0.1:1/x.log")
    assert "connect" in refused.value.what.lower()
    assert "x.log" not in refused.value.what
    assert refused.value.todo.startswith("check the address")


def test_a_remote_file_that_is_not_there_is_said_not_to_be() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(DsprofError, match="there is no such file"):
        open_bytes("memory://nowhere.log")


def test_progress_counts_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(LINE * 5000)
    seen: list[int] = []
    logs.read([path], progress=seen.append)
    assert sum(seen) == len(LINE) * 5000


def test_a_folder_s_pipes_and_sockets_are_left_alone(tmp_path: Path) -> None:
    """Nobody may ever write to them, and reading would wait for ever."""
    (tmp_path / "run.log").write_text("a line\n")
    os.mkfifo(tmp_path / "pipe.log")
    assert [source.name for source in sources_of([tmp_path])] == [str(tmp_path / "run.log")]
