"""Several processes, launches and restarts in one folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsprof.errors import DsprofError
from dsprof.recording import Recordings, RowKind, Writer, read_folder, read_rows
from dsprof.recording.bulk import read_bulk
from dsprof.recording.layout import pack_header, parse_header
from dsprof.recording.read import segments
from tests.recording.recorded import events, follow, header, record, step_numbers, write_steps


def test_ranks_of_one_launch_are_one_segment(tmp_path: Path) -> None:
    for rank in range(3):
        record(tmp_path, 2, rank)
    found = events(tmp_path)
    assert set(found["segment"]) == {0}
    assert sorted(found["rank"].unique()) == [0, 1, 2]
    assert found["record"].is_unique


def test_a_restart_opens_a_new_segment_although_ranks_change(tmp_path: Path) -> None:
    for rank in (0, 1):
        record(tmp_path, 2, rank, restart=0)
    record(tmp_path, 3, 0, restart=1, world=1)
    found = events(tmp_path)
    assert found.groupby("segment")["rank"].unique().map(sorted).to_dict() == {0: [0, 1], 1: [0]}
    assert step_numbers(found[found["segment"] == 1]) == [1, 2, 3]


def test_a_rank_that_comes_twice_was_launched_twice(tmp_path: Path) -> None:
    for _ in range(2):
        for rank in (0, 1):
            record(tmp_path, 2, rank)
    found = events(tmp_path)
    assert found.groupby("segment")["rank"].unique().map(sorted).to_dict() == {0: [0, 1], 1: [0, 1]}


def test_segments_count_launches_in_order_of_time() -> None:
    def said(
        rank: int, wall: int, launch: str | None = None, restart: int = 0
    ) -> dict[str, object]:
        clock = {"perf_ns": 0, "wall_ns": wall}
        return {"rank": rank, "launch": launch, "restart": restart, "clock": clock}

    assert segments([said(0, 9, "b"), said(0, 5, "a"), said(1, 6, "a"), said(1, 8, "b")]) == [
        1, 0, 0, 1,
    ]  # fmt: skip
    assert segments([said(0, 1), said(1, 2), said(0, 7, None, 1), said(0, 8, None, 1)]) == [
        0, 0, 1, 2,
    ]  # fmt: skip
    assert segments([]) == []


def test_two_processes_never_share_a_file(tmp_path: Path) -> None:
    """Containers reuse process ids: same rank, same id, one folder."""
    first = Writer.create(tmp_path, header())
    second = Writer.create(tmp_path, header())
    assert first.path != second.path
    write_steps(first, 1, 3)
    write_steps(second, 1, 2)
    assert step_numbers(events(first.path)) == [1, 2, 3]
    assert step_numbers(events(second.path)) == [1, 2]
    first.close()
    second.close()


def test_a_process_takes_no_names_of_one_whose_first_part_is_forgotten(tmp_path: Path) -> None:
    first = Writer.create(tmp_path, header(), keep_bytes=64 << 10)
    name = first.path
    write_steps(first, 1, 300)
    first.close()
    assert not name.exists()
    second = Writer.create(tmp_path, header())
    write_steps(second, 1, 2)
    second.close()
    found = events(tmp_path)
    by_launch = found[found["name"] == "step_seconds"].groupby("segment")["step"]
    assert by_launch.max().to_dict() == {0: 300, 1: 2}
    assert by_launch.count().to_dict() == {0: 300, 1: 2}


def test_a_folder_that_goes_while_it_is_followed_gives_nothing_more(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    path = record(folder, 2)
    recordings = Recordings([path])
    assert step_numbers(follow(recordings)) == [1, 2]
    path.unlink()
    folder.rmdir()
    assert len(follow(recordings)) == 0


def test_a_process_without_a_rank_is_recorded_too(tmp_path: Path) -> None:
    Writer.create(tmp_path, {"rank": None, "config": {"dtype": "bf16"}}).close()
    found = events(tmp_path)
    assert list(found["name"]) == ["dtype"]
    assert found["rank"].isna().all()


def test_a_file_that_appears_later_is_followed(tmp_path: Path) -> None:
    recordings = Recordings([tmp_path])
    assert len(follow(recordings)) == 0
    first = Writer.create(tmp_path, header(0))
    write_steps(first, 1, 1)
    assert set(follow(recordings)["rank"]) == {0}
    second = Writer.create(tmp_path, header(1))
    write_steps(second, 1, 1)
    write_steps(first, 2, 2)
    found = follow(recordings)
    assert step_numbers(found[found["rank"] == 1]) == [1]
    assert step_numbers(found[found["rank"] == 0]) == [2]
    assert len(follow(recordings)) == 0
    assert [told["ended"] for told in recordings.facts()["recordings"]] == [False, False]
    first.close()
    recordings.follow()
    assert [told["ended"] for told in recordings.facts()["recordings"]] == [True, False]
    second.close()


def test_folders_may_hold_folders(tmp_path: Path) -> None:
    record(tmp_path / "node-0", 1, 0)
    record(tmp_path / "node-1", 1, 1)
    assert sorted(events(tmp_path)["rank"].unique()) == [0, 1]


def test_all_files_of_a_process_count_once_however_they_are_named(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header(), keep_bytes=64 << 10)
    write_steps(writer, 1, 300)
    writer.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) > 3
    assert step_numbers(events(*files)) == list(range(1, 301))
    assert step_numbers(events(files[3])) == list(range(1, 301))


def test_a_foreign_file_in_the_folder_is_named(tmp_path: Path) -> None:
    record(tmp_path, 1)
    (tmp_path / "other.dsprof").write_bytes(b"something else altogether")
    with pytest.raises(DsprofError, match=r"other\.dsprof: is no dsprof recording"):
        events(tmp_path)


def test_a_header_without_clocks_is_named(tmp_path: Path) -> None:
    path = record(tmp_path, 1)
    data = path.read_bytes().replace(b'"perf_ns"', b'"perf_no"')
    path.write_bytes(data)
    with pytest.raises(DsprofError, match="header without clocks"):
        events(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DsprofError, match=r"gone\.dsprof: cannot be read: No such file"):
        events(tmp_path / "gone.dsprof")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = record(tmp_path, 1)
    path.chmod(0)
    with pytest.raises(DsprofError, match="Permission denied"):
        events(tmp_path)


def test_a_later_part_that_can_no_longer_be_read_is_named(tmp_path: Path) -> None:
    path = record(tmp_path, 1)
    lost = path.with_suffix(".1.dsprof")
    lost.mkdir()  # opens, and fails as it is read, like a file that its server has lost
    with pytest.raises(DsprofError, match="Is a directory") as told:
        events(tmp_path)
    assert told.value.where == str(lost)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rank", 10**400),
        ("rank", 2**31),
        ("rank", -1),
        ("rank", {"of": 0}),
        ("world", 10**400),
        ("host", "\ud800"),
        ("config", {"long": 10**400, "half": "\ud800"}),
    ],
)
def test_a_header_that_says_what_no_table_holds_is_read_without_it(
    tmp_path: Path, key: str, value: object
) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 2)
    writer.close()
    written = writer.path.read_bytes()
    told = parse_header(written, "")
    writer.path.write_bytes(pack_header(told.meta | {key: value}) + written[told.rows :])
    assert set(read_folder(tmp_path)["rank"].to_pylist()) == {None if key == "rank" else 0}
    assert [one.rank for one in read_bulk([tmp_path]).processes] == [None if key == "rank" else 0]
    assert len(read_rows(RowKind.STEP, tmp_path)) == 2
    recordings = Recordings([tmp_path])
    recordings.follow()
    assert recordings.facts()["recordings"][0]["rank"] == (None if key == "rank" else 0)


@pytest.mark.parametrize("moment", [10**400, 2**63, 2**62, -(2**70)])
@pytest.mark.parametrize("clock", ["perf_ns", "wall_ns"])
def test_a_clock_that_shows_no_time_is_none(tmp_path: Path, clock: str, moment: int) -> None:
    meta = {"rank": 0, "clock": {"perf_ns": 1, "wall_ns": 2} | {clock: moment}}
    (tmp_path / "rank-00000.5.dsprof").write_bytes(pack_header(meta))
    with pytest.raises(DsprofError, match="without clocks"):
        read_folder(tmp_path)
