"""Where logs are, and what is said when they are not."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import pytest

from dsprof import logs
from dsprof.errors import DsprofError
from dsprof.logs.source import named, open_bytes, sources_of
from tests.logs.reading import PFX, STEP, TIMERS, plain

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
        ("archive", "cannot be unpacked"),
        ("zst", "cannot be unpacked"),
    ],
)
def test_bad_input_is_one_clear_error(fault: str, words: str, tmp_path: Path) -> None:
    path = _faulty(tmp_path, fault)
    with pytest.raises(DsprofError, match=words) as caught:
        logs.read([path])
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


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


@pytest.mark.parametrize("part", [0.3, 0.7])
def test_of_a_damaged_archive_what_could_be_unpacked_counts(part: float, tmp_path: Path) -> None:
    text = b"".join(PFX + STEP % n + b"\n" + b"%d noise\n" % (n * 7919) for n in range(1, 20_001))
    whole = gzip.compress(text)
    path = tmp_path / "run.log.gz"
    path.write_bytes(whole[: int(len(whole) * part)])
    found = logs.read([path]).events.num_rows
    assert 0 < found < 60_000


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


def test_progress_counts_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(LINE * 5000)
    seen: list[int] = []
    logs.read([path], progress=seen.append)
    assert sum(seen) == len(LINE) * 5000
