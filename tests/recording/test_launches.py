"""When the command of a launch was over."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dsprof.recording import Recordings, Writer, launches


def test_the_end_of_a_launch_is_known_to_the_recordings_of_that_launch_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / launches.FOLDER).mkdir()
    for rank, launch in enumerate(("ours", "another")):
        Writer.create(tmp_path, {"rank": rank, "launch": launch}).close()
    before = time.time_ns()
    launches.end(tmp_path, "ours", 3)
    recordings = Recordings([tmp_path])
    recordings.follow()
    facts = recordings.facts()["recordings"]
    over = [one["over_at"] for one in facts]
    recordings.close()
    assert over[1] is None
    assert [one["over_with"] for one in facts] == [3, None]
    assert before <= over[0] <= time.time_ns()


@pytest.mark.parametrize("launch", ["../../secret", "", None, 7, "x" * 200, "not there"])
def test_what_a_header_says_is_no_path(tmp_path: Path, launch: object) -> None:
    (tmp_path / "secret.ended").write_text("1")
    (tmp_path / "a" / launches.FOLDER).mkdir(parents=True)
    assert launches.end_of(tmp_path / "a", launch) is None


@pytest.mark.parametrize("told", ["yesterday", f"{2**63} 0", "-1 0"])
def test_an_end_that_is_no_moment_is_unknown(tmp_path: Path, told: str) -> None:
    (tmp_path / launches.FOLDER).mkdir()
    (tmp_path / launches.FOLDER / "ours.ended").write_text(told)
    assert launches.end_of(tmp_path, "ours") is None


def test_a_folder_that_cannot_be_written_ends_no_training(tmp_path: Path) -> None:
    launches.end(tmp_path / "gone", "ours", 0)
    assert launches.end_of(tmp_path / "gone", "ours") is None


def test_an_end_is_told_of_the_process_that_recorded(tmp_path: Path) -> None:
    (tmp_path / launches.FOLDER).mkdir()
    for rank in range(5):
        Writer.create(tmp_path, {"rank": rank, "launch": "ours"}).close()
    files = sorted(tmp_path.glob("*.dsprof"))
    launches.killed(files[1], 1234, 9)
    launches.killed(files[2], 1234, None)  # nobody saw how
    launches.killed(files[3], 1234, 0)
    launches.killed(files[4], 1234, 0x8B)  # SIGSEGV, and a core was dumped
    recordings = Recordings([tmp_path])
    recordings.follow()
    told = [facts["killed"] for facts in recordings.facts()["recordings"]]
    recordings.close()
    assert told == [
        None, (1234, 9, None), (1234, 0, None), (1234, 0, 0), (1234, 11, None),
    ]  # fmt: skip


def test_an_exit_code_is_told_beside_no_signal(tmp_path: Path) -> None:
    (tmp_path / launches.FOLDER).mkdir()
    recording = tmp_path / "rank-00000.7.dsprof"
    launches.killed(recording, 1234, 7 << 8)
    assert launches.killed_at(recording) == (1234, 0, 7)
    for foreign in ("1234", "1 2 3 4", "now 9", f"{2**63} 9", "-5 9"):
        (tmp_path / launches.FOLDER / "rank-00000.7.killed").write_text(foreign)
        assert launches.killed_at(recording) is None


def test_one_note_tells_the_end_of_a_process_however_many_parts_it_recorded(
    tmp_path: Path,
) -> None:
    (tmp_path / launches.FOLDER).mkdir()
    first, later = tmp_path / "rank-00000.7.dsprof", tmp_path / "rank-00000.7.3.dsprof"
    launches.killed(later, 1234, 9)
    launches.not_found(first, 5678)
    assert launches.killed_at(first) == launches.killed_at(later) == (1234, 9, None)


@pytest.mark.parametrize(
    ("ranks", "world", "every"),
    [([0, 1], 2, True), ([0, 0], 2, False), ([1], None, True), ([], None, False)],
)
def test_every_rank_was_recorded_where_none_of_the_known_ones_is_missing(
    ranks: list[int], world: int | None, every: bool
) -> None:
    known = {"recordings": [{"rank": rank} for rank in ranks] or None, "world_size": world}
    assert launches.is_every_rank_recorded(known) is every
