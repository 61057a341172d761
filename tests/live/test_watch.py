"""What a watched run looks like: who is late, who died, what came and went."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsprof.live import feed
from dsprof.live.past import parts_under
from dsprof.live.picture import Picture
from dsprof.live.text import headline
from dsprof.live.watch import Watch
from dsprof.recording import Writer, stream
from dsprof.recording.launches import FOLDER, end, killed
from tests.conftest import without_pandas
from tests.findings.test_engines import in_turns
from tests.live.jobs import MS, ROOT, Job, alone
from tests.live.test_log import step_line
from tests.loaded import loaded

SAMPLES = ROOT / "sample_logs"


def rules(picture: Picture, *, now: bool = True) -> set[str]:
    return {seen.finding.rule for seen in picture.findings if seen.gone is None and seen.now == now}


def until(watch: Watch, seen: Callable[[Picture], bool], seconds: float = 20) -> Picture:
    """The first picture that shows it."""
    end = time.monotonic() + seconds
    while True:
        picture = watch.refresh()
        if seen(picture):
            return picture
        assert time.monotonic() < end, (picture.state, picture.note)
        time.sleep(0.25)  # each look judges what is new


def test_a_folder_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    watch = Watch([str(tmp_path / "run")])
    picture = watch.refresh()
    assert (picture.state, picture.step, picture.bars) == ("waiting", None, ())
    assert picture.note == f"waiting for {tmp_path / 'run'} to appear"
    watch.feed._looked = -10
    Job(tmp_path / "run", 2).run(3)
    picture = watch.refresh()
    assert (picture.state, picture.step) == ("running", 3)


def test_a_job_whose_recordings_forget_their_first_files_is_watched_on(tmp_path: Path) -> None:
    job = Job(tmp_path, 2, keep_bytes=64 << 10)
    first = job.writers[0].path
    watch = Watch([str(tmp_path)])
    while first.exists():
        job.run(100)
        picture = watch.refresh()
        assert (picture.state, picture.step) == ("running", job.step)


def test_ranks_that_do_not_record_yet_are_named(tmp_path: Path) -> None:
    job = Job(tmp_path, 4)
    for writer in job.writers[2:]:
        writer.close()
        writer.path.unlink()
    watch = Watch([str(tmp_path)])
    assert watch.refresh().note == "waiting for ranks 2 and 3"


def test_the_late_rank_is_named_from_the_first_steps(tmp_path: Path) -> None:
    job = Job(tmp_path, 4)
    job.run(4, slow={2: 60})
    picture = Watch([str(tmp_path)]).refresh()
    assert picture.ranks.late == 2
    assert picture.ranks.sentence.startswith("ranks 0, 1 and 3 wait for rank 2: 60.0 ms per step")
    assert picture.ranks.rows[0].rank == 2
    assert picture.ranks.rows[0].late_by == pytest.approx(0.060, rel=0.01)
    assert picture.ranks.rows[1].waits == pytest.approx(0.080, rel=0.01)


def test_a_rank_that_alone_is_late_in_every_third_step_is_named(tmp_path: Path) -> None:
    job = Job(tmp_path, 4)
    for _ in range(20):
        job.run(2)
        job.run(1, slow={2: 90})
    ranks = Watch([str(tmp_path)]).refresh().ranks
    assert ranks.late == 2
    assert ranks.sentence.startswith(
        "ranks 0, 1 and 3 wait for rank 2: 30.5 ms per step"
    )  # 20 of 59


def test_a_rank_that_is_late_where_nothing_is_timed_comes_first(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.run(4, slow={1: 60}, timed=False)
    ranks = Watch([str(tmp_path)]).refresh().ranks
    assert ranks.late == 1
    assert [row.rank for row in ranks.rows] == [1, 0]
    assert [row.late_by for row in ranks.rows] == pytest.approx([0.060, 0], rel=0.01)
    untimed = ranks.phases.index("no timer")
    late, other = (row.phases[untimed] for row in ranks.rows)
    assert late
    assert other is not None
    assert late - other == pytest.approx(0.060, rel=0.01)


def test_a_rank_that_has_just_become_late_is_named_after_five_steps(tmp_path: Path) -> None:
    job = Job(tmp_path, 4)
    job.run(60)
    watch = Watch([str(tmp_path)])
    assert watch.refresh().ranks.late is None
    job.run(3, slow={2: 60})
    assert watch.refresh().ranks.late is None  # it may be chance
    job.run(3, slow={2: 60})
    picture = watch.refresh()
    assert picture.ranks.late == 2
    assert picture.ranks.sentence.endswith("in the last 6 steps")


def test_a_finding_comes_and_goes(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.run(30, slow={1: 100})
    watch = Watch([str(tmp_path)])
    assert "straggler-rank" in rules(watch.refresh())
    job.run(100)
    picture = watch.refresh()
    assert "straggler-rank" not in rules(picture)
    gone = [seen for seen in picture.findings if seen.finding.rule == "straggler-rank"]
    assert len(gone) == 1
    assert gone[0].gone is not None or not gone[0].now


def test_steps_are_drawn_with_their_classes(tmp_path: Path) -> None:
    Job(tmp_path, 2).run(5, ms=100)
    bars = Watch([str(tmp_path)]).refresh().bars
    assert [bar.step for bar in bars] == [1, 2, 3, 4, 5]
    assert bars[2].seconds == pytest.approx(0.1)
    assert bars[2].classes[:2] == pytest.approx((0.08, 0.02))


def test_a_job_that_closes_its_recordings_has_ended(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.run(3)
    job.close()
    assert Watch([str(tmp_path)]).refresh().state == "ended"


def test_a_job_has_ended_although_its_log_could_go_on(tmp_path: Path) -> None:
    job = Job(tmp_path / "run", 2)
    job.run(3)
    log = tmp_path / "job.log"
    log.write_bytes(step_line(3))
    watch = Watch([str(tmp_path / "run"), str(log)])
    job.close()
    assert watch.refresh(10).state == "running"  # the launcher may still have something to say
    watch.feed.grown -= 60
    for process in watch.feed.processes:
        process.grown -= 60
    os.utime(log, (time.time() - 60,) * 2)
    assert watch.refresh(10).state == "ended"


def test_a_killed_rank_is_named_and_the_others_are_its_victims(tmp_path: Path) -> None:
    processes = [alone(tmp_path, rank, 2) for rank in range(2)]
    try:
        watch = Watch([str(tmp_path)])
        until(watch, lambda p: p.step is not None and len(p.ranks.rows) == 2 and p.note == "")
        os.kill(processes[1].pid, signal.SIGKILL)
        picture = until(watch, lambda p: p.state == "died")
        assert picture.note.startswith("rank 1 died after step ")
        assert picture.note.endswith("rank 0 left")
        assert "rank-died" in rules(picture)
        processes[0].kill()
        picture = until(watch, lambda p: sum(r.kind != "" for r in p.problems) == 2)
        assert {(row.rank, row.kind) for row in picture.problems} == {
            (1, "gone"),
            (0, "killed-by-launcher"),
        }
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_of_two_found_dead_at_one_look_who_waited_is_the_victim(tmp_path: Path) -> None:
    Job(tmp_path, 2).run(3)
    watch = Watch([str(tmp_path)])
    watch.refresh()
    for process in watch.feed.processes:
        process.met, process.host, process.grown = True, "elsewhere", 0.0
    waiting = watch.feed.processes[0].recording
    waiting.in_flight = lambda: {"name": "all_reduce", "seq": 1, "at": None}  # type: ignore[method-assign]
    picture = watch.refresh()
    assert picture.note == "rank 1 died after step 3, then 1 other rank"


def test_a_rank_that_was_seen_to_be_killed_has_died_although_nobody_watched_it_run(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path, 2)
    job.run(3)
    (tmp_path / FOLDER).mkdir()
    for writer, at, by in zip(
        job.writers, (2_000_000_000, 1_000_000_000), (signal.SIGTERM, signal.SIGKILL), strict=True
    ):
        os.utime(writer.path, (time.time() - 120,) * 2)
        killed(Path(writer.path), at, by)
    watch = Watch([str(tmp_path)])
    watch.refresh()
    for process in watch.feed.processes:
        process.grown = time.time() - 120
    picture = watch.refresh()
    assert {row.rank: row.state for row in picture.ranks.rows} == {0: "died", 1: "died"}
    assert picture.note == "rank 1 was killed by SIGKILL after step 3, then 1 other rank"
    assert {(row.rank, row.kind) for row in picture.problems} == {
        (1, "signal"),
        (0, "killed-by-launcher"),
    }


def test_a_save_behind_the_last_step_is_no_step_that_ended(tmp_path: Path) -> None:
    """Its row has the number of the step that never came."""
    job = Job(tmp_path, 2, launch="one")
    job.run(3)
    (tmp_path / FOLDER).mkdir()
    for writer in job.writers:
        writer.span(writer.name("checkpoint", 0, "checkpoint"), job._at, job._at + 10**8, 4)
        writer.flush()
        killed(Path(writer.path), time.time_ns(), signal.SIGTERM)
    end(tmp_path, "one", -15)
    watch = Watch([str(tmp_path)])
    watch.refresh()
    for process in watch.feed.processes:
        process.grown = time.time() - 120
    picture = watch.refresh()
    title = next(seen.finding.title for seen in picture.findings)
    assert title.startswith("The job was killed by SIGTERM after step 3")


def test_a_rank_that_exited_with_a_code_is_told_once_and_with_it(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.run(3)
    (tmp_path / FOLDER).mkdir()
    killed(Path(job.writers[1].path), time.time_ns(), 3 << 8)
    job.writers[0].close()
    watch = Watch([str(tmp_path)])
    watch.refresh()
    for process in watch.feed.processes:
        process.grown = time.time() - 120
    picture = watch.refresh()
    assert [(row.rank, row.kind) for row in picture.problems] == [(1, "exit")]
    assert picture.note == "rank 1 exited with code 3 after step 3"
    assert picture.findings[0].finding.title.startswith("Rank 1 on node-0 exited with an error")


def test_a_rank_of_another_host_that_was_seen_to_exit_with_an_error_has_died(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path, 2)
    job.run(3)
    watch = Watch([str(tmp_path)])
    watch.refresh()
    (tmp_path / FOLDER).mkdir()
    gone = watch.feed.processes[1]
    gone.met, gone.host, gone.grown = False, "elsewhere", 0.0
    killed(Path(gone.recording.path), time.time_ns(), 3 << 8)
    picture = watch.refresh()
    assert picture.note.startswith("rank 1 exited with code 3 after step 3")


def test_a_rank_that_died_is_told_anew_once_it_is_known_how(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.run(3)
    watch = Watch([str(tmp_path)])
    watch.refresh()
    dead = watch.feed.processes[1]
    dead.met, dead.host, dead.grown = True, "elsewhere", 0.0
    assert [row.kind for row in watch.refresh().problems] == ["gone"]
    (tmp_path / FOLDER).mkdir()
    killed(Path(dead.recording.path), time.time_ns(), signal.SIGKILL)
    picture = watch.refresh()
    assert [row.kind for row in picture.problems] == ["signal"]
    assert "killed by SIGKILL" in picture.findings[0].finding.title


@pytest.mark.parametrize("seen", [True, False])
def test_ranks_that_skip_their_end_and_exit_with_code_0_have_ended(
    tmp_path: Path, *, seen: bool
) -> None:
    """As `os._exit(0)` does. Without the code of each that of their command tells."""
    job = Job(tmp_path, 2, launch="a")
    job.run(3)
    watch = Watch([str(tmp_path)])
    watch.refresh()
    (tmp_path / FOLDER).mkdir()
    for process in watch.feed.processes:
        process.met, process.host, process.grown = True, "elsewhere", 0.0
        if seen:
            killed(Path(process.recording.path), 1, 0)
    if not seen:
        assert watch.refresh().state == "died"
        watch = Watch([str(tmp_path)])
        watch.refresh()
        end(tmp_path, "a", 0)
        for process in watch.feed.processes:
            process.met, process.host, process.grown = True, "elsewhere", 0.0
    assert watch.refresh().state == "ended"


def test_a_process_of_another_machine_is_silent_not_dead(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.run(3)
    for writer in job.writers:
        os.utime(writer.path, (time.time() - 120,) * 2)
    watch = Watch([str(tmp_path)])
    watch.refresh()
    for process in watch.feed.processes:
        process.grown = time.time() - 120
    watch.feed.grown = time.time() - 120
    picture = watch.refresh()
    assert picture.state == "silent"
    assert picture.note.startswith("nothing was written for 2 min 00 s")


def test_a_restart_with_other_ranks_begins_anew(tmp_path: Path) -> None:
    first = Job(tmp_path, 4, launch="a")
    first.run(10)
    watch = Watch([str(tmp_path)])
    assert len(watch.refresh().ranks.rows) == 4
    second = Job(tmp_path, 2, launch="b")
    second.run(2)
    watch.feed._looked = -10
    picture = watch.refresh()
    assert (picture.launches, picture.step, len(picture.ranks.rows)) == (2, 2, 2)


OOM = b"[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def test_a_report_of_what_is_watched_counts_launches_from_the_first(tmp_path: Path) -> None:
    for launch in ("first", "second"):
        job = Job(tmp_path, 2, launch=launch)
        job.run(5)
        job.close()
    watch = Watch([str(tmp_path)])
    watch.refresh(10)
    run = watch.run()
    assert sorted(run.steps["segment"].unique()) == [0, 1]
    assert sorted(one["segment"] for one in run.meta["recordings"]) == [0, 0, 1, 1]
    watch.report(tmp_path / "page.html")
    assert "of launch 1,00" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_log_of_a_second_launch_alone_is_of_that_launch(tmp_path: Path) -> None:
    for launch in "ab":
        job = Job(tmp_path / "run", 2, launch=launch)
        job.run(6)
        job.close()
    log = tmp_path / "job.log"
    log.write_bytes(b"".join(map(step_line, range(1, 7))) + OOM)
    picture = Watch([str(tmp_path / "run"), str(log)]).refresh(10)
    assert (picture.state, picture.launches) == ("died", 2)
    assert "earlier-failure" not in rules(picture) | rules(picture, now=False)


def test_a_log_cut_by_a_restart_is_of_the_new_launch_though_it_prints_no_step(
    tmp_path: Path,
) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(b"a launcher says hello\n")
    watch = Watch([str(tmp_path / "run"), str(log)])
    first = Job(tmp_path / "run", 2, launch="a")
    first.run(6)
    first.close()
    watch.refresh(10)
    with log.open("r+b") as file:
        file.truncate()
        file.write(b"an")
    watch.refresh(10)
    second = Job(tmp_path / "run", 2, launch="b")
    second.run(6)
    with log.open("ab") as file:
        file.write(b"other launcher\n" + OOM)
    watch.feed._looked = -10
    picture = watch.refresh(10)
    assert (picture.state, picture.launches) == ("died", 2)
    assert "earlier-failure" not in rules(picture) | rules(picture, now=False)


def test_a_log_that_tells_of_an_older_launch_too_hides_no_recording(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(b"".join(map(step_line, [*range(1, 31), *range(1, 7)])))
    Job(tmp_path / "run", 2).run(6)
    os.utime(log)
    picture = until(Watch([str(tmp_path / "run"), str(log)]), lambda seen: seen.launches == 2, 60)
    assert (picture.step, len(picture.ranks.rows)) == (6, 2)
    assert picture.ranks.rows[0].seconds is not None


@pytest.mark.parametrize(
    "name",
    [
        "neox_pipeline_2023",
        "straggler_0.19.8",
        "zero3_0.19.8",  # a defect of its version, which only headers of lines tell
        "killed_rank_torchrun_0.19.8",  # steps are counted: nobody knows at which one it died
    ],
)
def test_verdict_and_findings_are_those_of_the_report(name: str) -> None:
    path = SAMPLES / f"{name}.log"
    picture = Watch([str(path)]).refresh(10)
    findings = loaded(path).findings
    assert picture.since is not None
    assert picture.since.title == findings[0].title
    assert {seen.finding.title for seen in picture.findings} == {found.title for found in findings}


def test_how_often_a_step_ends_is_told_where_engines_take_turns(tmp_path: Path) -> None:
    """And not only how long the turn of one takes."""
    in_turns(tmp_path, engines=2)
    picture = Watch([str(tmp_path)]).refresh(10)
    assert "100 ms per step, one every 140 ms · 114 samples/s" in headline(picture)


def test_the_model_that_is_trained_now_is_shown_not_that_of_the_fold_before(
    tmp_path: Path,
) -> None:
    writer = Writer.create(tmp_path, {"rank": 0, "world": 1, "host": "node-0"})
    forward = writer.name("forward", 0, "compute")
    watch = Watch([str(tmp_path)])
    at = time.perf_counter_ns() - 200_000 * MS
    for engine, (steps, ms) in enumerate([(500, 100), (40, 300)]):
        for step in range(1, steps + 1):
            at += 2 * ms * MS
            writer.span(forward, at - ms * MS, at, step, engine=engine)
            writer.step(step, at - ms * MS, at, engine=engine)
        writer.flush()
        picture = watch.refresh(10)
    writer.close()
    assert picture.step == 40
    assert picture.figures.seconds == pytest.approx(0.3)
    assert [bar.step for bar in picture.bars] == list(range(1, 41))


def test_records_without_a_step_number_are_counted_as_records(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes((SAMPLES / "killed_rank_torchrun_0.19.8.log").read_bytes().split(b"W1121")[0])
    picture = Watch([str(path)]).refresh(10)
    assert (picture.state, picture.step, picture.records) == ("running", None, 19)
    assert headline(picture).startswith("running · 19 records · ")


def test_a_log_whose_processes_all_ended_well_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    whole = (SAMPLES / "straggler_0.19.8.log").read_bytes()
    head, last, _ = whole.rpartition(b" exits successfully.")
    path.write_bytes(head)
    watch = Watch([str(path)])
    assert watch.refresh(10).state == "running"  # one of two
    with path.open("ab") as file:
        file.write(last + b"\n")
    picture = watch.refresh(10)
    assert (picture.state, picture.note) == ("ended", "every process has ended well")


def test_calls_whose_times_are_doubted_have_none() -> None:
    table = Watch([str(SAMPLES / "comms_table_0.19.8.log")]).refresh(10).comm
    assert table.steps is None  # no line tells of a step: the summary counts since the start
    assert {(row.seconds, row.busbw) for row in table.rows} == {(None, None)}
    assert sum(row.count for row in table.rows) > 100


def test_calls_of_a_step_that_goes_on_are_none_of_the_mean_step(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.run(4)
    for writer in job.writers:
        call = writer.name("all_reduce", writer.name("backward", 0, "compute"))
        writer.collective(call, writer.name("world"), 0, 0, 0, 5, -1, 4 << 20, 1, 0)
        writer.flush()
    table = Watch([str(tmp_path)]).refresh(10).comm
    assert (table.steps, [row.count for row in table.rows]) == (3, [1.0])


def test_calls_of_the_step_that_warms_up_are_none_of_the_mean_step(tmp_path: Path) -> None:
    """As on the page."""
    job = Job(tmp_path, 2)
    job.run(1, slow={0: 5_000})  # the other rank waits for five seconds in its call
    job.run(7)
    table = Watch([str(tmp_path)]).refresh(10).comm
    assert table.steps == 7
    assert table.rows[0].exposed == pytest.approx(0.02)


def test_a_failure_told_by_a_log_is_the_end() -> None:
    picture = Watch([str(SAMPLES / "killed_rank_torchrun_0.19.8.log")]).refresh(10)
    assert picture.state == "died"
    assert "Rank 1" in picture.note
    assert "SIGKILL" in picture.note


@pytest.mark.parametrize("last", [0, 400], ids=["one launch", "a restart"])
def test_the_end_of_a_large_log_is_there_at_once_and_its_past_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    """Steps 1 to 1,000, and those of a restart up to `last`, within which the end begins."""
    monkeypatch.setattr(feed, "LARGE", 100_000)
    monkeypatch.setattr(feed, "TAIL", 20_000)
    launches = [range(1, 1_001), range(1, last + 1)][: 1 + bool(last)]
    path = tmp_path / "run.log"
    path.write_bytes(b"".join(step_line(step) for steps in launches for step in steps))
    watch = Watch([str(path)])
    picture = watch.refresh(0.0)
    assert picture.step == (last or 1_000)
    assert picture.behind > 0
    while watch.feed.behind:
        watch.read()
    watch.refresh()
    picture = watch.look_back()
    assert picture.launches == len(launches)
    assert len({bar.step for bar in picture.bars}) == len(picture.bars)
    events = watch.run().events
    told = events.groupby("segment")["step"].nunique()
    assert told.tolist() == [len(steps) for steps in launches]
    end = events[(events["segment"] == len(launches) - 1) & (events["step"] == (last or 1_000))]
    lines = 2 * sum(map(len, launches))
    assert set(end["line"].dropna()) <= {lines - 1, lines}


def read_all(watch: Watch) -> Picture:
    """With all that stood before the places where reading began."""
    watch.refresh(0.0)
    while watch.feed.behind:
        watch.read()
    watch.refresh()
    return watch.look_back()


def test_a_large_log_that_is_read_at_one_look_is_of_one_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "LARGE", 20_000)
    monkeypatch.setattr(feed, "TAIL", 10_000)
    path = tmp_path / "run.log"
    path.write_bytes(b"".join(map(step_line, range(1, 201))))
    watch = Watch([str(path)])
    watch.refresh(10)
    assert watch.look_back().launches == 1


def test_the_past_of_a_large_log_beside_recordings_is_of_their_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "LARGE", 20_000)
    monkeypatch.setattr(feed, "TAIL", 10_000)
    Job(tmp_path, 1).run(5)
    path = tmp_path / "run.log"
    path.write_bytes(b"".join(map(step_line, range(1, 201))))
    assert read_all(Watch([str(tmp_path)])).launches == 1


def test_a_small_log_beside_a_large_one_is_of_its_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "LARGE", 20_000)
    monkeypatch.setattr(feed, "TAIL", 10_000)
    for rank, more in enumerate((b"", b" " * 150)):
        lines = (step_line(step).replace(b"Rank 0", b"Rank %d" % rank) for step in range(1, 101))
        (tmp_path / f"rank{rank}.log").write_bytes(b"".join(line + more + b"\n" for line in lines))
    watch = Watch([str(tmp_path)])
    watch.read(10)
    told = watch._store.recent().to_pandas()
    assert {Path(name).stem for name in told["source"]} == {"rank0", "rank1"}
    assert read_all(watch).launches == 1


def ends_first(monkeypatch: pytest.MonkeyPatch, large: int = 40_000) -> None:
    """Of so many bytes of recordings, their ends are read before the rest."""
    monkeypatch.setattr(feed, "LARGE", large)
    monkeypatch.setattr(feed, "_LEAST", 1_000)


@pytest.mark.parametrize("keep", [256 << 20, 100_000], ids=["one part", "a ring"])
def test_the_end_of_long_recordings_is_there_at_once_and_their_past_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: int
) -> None:
    job = Job(tmp_path, 2, keep_bytes=keep)
    job.run(200)
    whole = Watch([str(tmp_path)])
    whole.read(10)
    ends_first(monkeypatch)
    watch = Watch([str(tmp_path)])
    assert watch.begin().step == 200
    picture = watch.refresh(0.0)
    assert (picture.step, len(picture.ranks.rows)) == (200, 2)
    assert 1 < len(picture.bars) < 100
    assert picture.behind > 0
    assert set(watch.run().phases["name"]) == set(whole.run().phases["name"])
    job.run(1)
    for one in (watch, whole):
        one.read(10)
    assert watch.feed.behind == 0
    assert watch.run().steps["step"].tolist() == list(range(1, 202))
    assert watch.run().steps["seconds"].tolist() == whole.run().steps["seconds"].tolist()


def test_the_room_at_the_end_of_short_recordings_is_no_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With some hundred ranks there is more room than rows."""
    Job(tmp_path, 2).run(5)
    ends_first(monkeypatch, large=100_000)
    watch = Watch([str(tmp_path)])
    assert watch.begin().step == 5
    assert watch.feed.behind == 0


def test_a_recording_that_is_deleted_while_it_is_looked_for_has_no_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "rank-00003.4242.dsprof"
    monkeypatch.setattr(Path, "rglob", lambda *_: [gone])
    assert not parts_under(str(tmp_path))


def test_the_past_is_read_although_what_is_new_takes_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Job(tmp_path, 2).run(200)
    ends_first(monkeypatch)
    watch = Watch([str(tmp_path)])
    watch.read(0.0)
    assert watch.feed.behind
    read_new = watch.feed._read_recordings

    def slowly(until: float) -> bool:
        time.sleep(max(0.0, until - time.monotonic()) + 0.01)
        return read_new(until)

    monkeypatch.setattr(watch.feed, "_read_recordings", slowly)
    for _ in range(20):
        watch.read(0.1)
    assert not watch.feed.behind


def open_files(folder: Path) -> list[str]:
    """Names of the files in a folder that this process has open to read, one a descriptor."""
    held = [fd.resolve() for fd in Path("/proc/self/fd").iterdir()]
    return sorted(file.name for file in held if file.parent == folder)


@pytest.mark.parametrize("read", [True, False], ids=["read", "not read"])
def test_of_what_was_before_no_file_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: bool
) -> None:
    job = Job(tmp_path, 1)
    job.run(200)
    job.close()
    (tmp_path / "run.log").write_bytes(b"".join(map(step_line, range(1, 1_001))))
    files = [next(tmp_path.glob("*.dsprof")).name, "run.log"]
    monkeypatch.setattr(feed, "LARGE", 40_000)
    monkeypatch.setattr(feed, "TAIL", 20_000)
    monkeypatch.setattr(feed, "_LEAST", 1_000)
    watch = Watch([str(tmp_path)])
    watch.read(0.0)
    assert watch.feed.behind
    while read and watch.feed.behind:
        watch.read()
    if read:
        assert open_files(tmp_path) == files
    watch.close()
    assert open_files(tmp_path) == []


def test_recordings_are_at_their_ends_before_the_last_steps_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else those steps would be told of by a log alone that stands beside them."""
    monkeypatch.setattr(stream, "PORTION", 4096)
    Job(tmp_path / "run", 2).run(200, slow={1: 60})
    (tmp_path / "job.log").write_bytes(b"".join(map(step_line, range(1, 201))))
    picture = Watch([str(tmp_path / "run"), str(tmp_path / "job.log")]).refresh(0.0)
    assert (picture.step, picture.ranks.late) == (200, 1)
    assert [row.step for row in picture.ranks.rows] == [200, 200]


@without_pandas
def test_the_first_picture_needs_no_pandas(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes(b"".join(map(step_line, range(1, 30))))
    Job(tmp_path / "a", 2).run(3)
    said = subprocess.run(
        [sys.executable, "-c", _FIRST, tmp_path / "run.log", tmp_path / "a"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert said.stdout == "29 []\n"


_FIRST = """
import sys
from dsprof.live.watch import Watch
step = Watch(sys.argv[1:]).begin().step
print(step, sorted({"pandas", "plotly", "textual", "rich", "jinja2"} & sys.modules.keys()))
"""


@pytest.mark.parametrize("size", [100, 200_000])  # read from its beginning, and from its end
def test_what_cannot_be_read_is_told_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(feed, "LARGE", 100_000)
    monkeypatch.setattr(feed, "TAIL", 10_000)
    (tmp_path / "bad.log").write_bytes(b"\x1f\x8b" + b"x\n" * (size // 2))
    (tmp_path / "good.log").write_bytes(b"".join(map(step_line, range(1, 4))))
    picture = Watch([str(tmp_path)]).refresh()
    assert picture.step == 3
    assert "is compressed" in picture.note


@pytest.mark.parametrize("size", [100, 200_000])  # read from its beginning, and from its end
def test_what_cannot_be_read_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(feed, "LARGE", 100_000)
    monkeypatch.setattr(feed, "TAIL", 10_000)
    (tmp_path / "bad.log").write_bytes(b"\x1f\x8b" + b"x\n" * (size // 2))
    assert Watch([str(tmp_path)]).refresh().behind == 0


def test_one_recording_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "rank-00002.9.dsprof").write_bytes(b"no recording\n" * 100)
    Job(tmp_path, 2).run(3)
    picture = Watch([str(tmp_path)]).refresh()
    assert (picture.step, len(picture.ranks.rows)) == (3, 2)
    assert "is no dsprof recording" in picture.note


def test_a_path_that_cannot_be_asked_for_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "good.log").write_bytes(b"".join(map(step_line, range(1, 4))))
    picture = Watch(["x" * 300, str(tmp_path / "good.log")]).refresh()
    assert picture.step == 3
    assert "name too long" in picture.note


def test_a_folder_that_becomes_a_file_is_survived(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Job(folder, 2).run(3)
    watch = Watch([str(folder)])
    watch.refresh()
    shutil.rmtree(folder)
    watch.refresh()
    folder.write_bytes(b"another thing\n")
    watch.feed._looked = -10
    assert watch.refresh().step == 3
    watch.report(tmp_path / "report.html")


def test_what_was_written_tomorrow_was_written_when_it_is_seen(tmp_path: Path) -> None:
    """Clocks of file servers go before; a clock that is set back leaves such times too."""
    Job(tmp_path / "run", 1).run(3)
    (tmp_path / "job.log").write_bytes(step_line(3))
    watch = Watch([str(tmp_path / "run"), str(tmp_path / "job.log")])
    for file in [tmp_path / "job.log", *(tmp_path / "run").iterdir()]:
        os.utime(file, (time.time() + 3600,) * 2)
    watch.refresh()
    begun = time.time()
    for process in watch.feed.processes:
        process.grown = begun + 3600
    watch.refresh()
    assert watch.feed.grown <= time.time()
    assert all(process.grown <= time.time() for process in watch.feed.processes)
    time.sleep(0.05)
    assert (watch.refresh().idle or 0) >= 0.05


def test_what_a_report_is_told_of_the_sources_is_asked_while_nothing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Job(tmp_path, 2).run(3)
    watch = Watch([str(tmp_path)])
    watch.refresh()
    known = watch.feed.facts
    asked = []

    def facts(_: feed.Feed) -> dict[str, object]:
        asked.append(watch._lock.locked())
        return known

    monkeypatch.setattr(feed.Feed, "facts", property(facts))
    watch.report(tmp_path / "report.html")
    assert asked == [True]


def test_of_logs_of_two_jobs_the_one_written_last_is_watched(tmp_path: Path) -> None:
    logs = [tmp_path / "old.log", tmp_path / "new.log"]
    for age, (log, name) in enumerate(zip(logs, ("zero1_accumulation", "zero3"), strict=True)):
        shutil.copy(SAMPLES / f"{name}_0.19.8.log", log)
        os.utime(log, (age, age))
    both, alone_ = (Watch([str(path)]) for path in (tmp_path, logs[1]))
    seen, told = both.refresh(), alone_.refresh()
    assert seen.note.startswith("one of 2 jobs: zero_stage is 1 in one and 3 in another")
    assert seen.logs == (str(logs[1]),)
    assert both.run().meta["jobs"] == [[str(logs[1])], [str(logs[0])]]
    assert seen.figures == told.figures
    assert [one.finding.title for one in seen.findings] == [
        one.finding.title for one in told.findings
    ]
    with logs[0].open("ab") as more:
        more.write(step_line(99))
    both.feed._looked = -10
    assert both.refresh().logs == (str(logs[1]),)


def test_a_launch_that_only_a_log_tells_of_is_not_judged_as_one_that_was_recorded(
    tmp_path: Path,
) -> None:
    """The timers of its log are no phases of a recording."""
    log = tmp_path / "run.log"
    log.write_bytes(b"".join(map(step_line, range(1, 101))))
    os.utime(log, (1e9, 1e9))  # before anything was recorded
    Job(tmp_path, 2).run(30)
    watch = Watch([str(tmp_path)])
    picture = read_all(watch)
    assert "unaccounted-time" not in rules(picture, now=False)
    assert picture.launches == 2
    assert picture.since is not None
    assert picture.since.steps == 29
