"""`dsprof live` for scripts: one picture, or one object a refresh."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dsprof.errors import DsprofError
from dsprof.live import headless, live
from dsprof.live.picture import Figures, MemoryRow, Picture, RankRow, RankTable
from dsprof.live.text import document, lines
from dsprof.live.watch import Watch
from dsprof.run import load
from dsprof.text.overview import overview
from dsprof.units import format_share
from tests.live.jobs import ROOT, Job
from tests.live.test_log import step_line
from tests.recording.test_beginnings import stands

SAMPLES = ROOT / "sample_logs"


def picture_of(*paths: Path) -> Picture:
    return headless.settled(Watch([str(path) for path in paths]))


def test_once_says_how_fast_what_holds_it_back_and_who_is_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Job(tmp_path, 4).run(30, slow={2: 60})
    headless.once(Watch([str(tmp_path)]), as_json=False)
    said = capsys.readouterr().out
    assert said.startswith("running · step 30 · 160 ms per step")
    assert "wait for rank 2: 60.0 ms per step" in said
    assert "compute 69 %" in said or "compute 59 %" in said
    assert "all_reduce of 4.00 MiB: 1 call," in said
    assert said.count("Now and since the start (29 steps): ") == 1  # a short job has one verdict
    assert said.count("compute") == 1
    assert "late by 0 s, waits" in said


def test_a_finding_wraps_beside_its_severity(capsys: pytest.CaptureFixture[str]) -> None:
    headless.once(Watch([str(SAMPLES / "zero3_0.19.8.log")]), as_json=False)
    said = capsys.readouterr().out.partition("Findings\n")[2].partition("\n\n")[0]
    first, *others = said.splitlines()
    assert first.startswith("  info      70 %")
    assert others[0].startswith(" " * 12)
    assert not others[0].startswith(" " * 13)


def test_the_json_of_a_refresh_is_one_line_with_every_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(tmp_path, 2)
    job.run(3)
    rests: list[float] = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        job.run(1)
        if len(rests) == 2:
            job.close()

    headless.follow(Watch([str(tmp_path)]), 0.0, rest)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["step"] for one in told] == [3, 4, 5]
    assert [one["state"] for one in told] == ["running", "running", "ended"]
    assert told[0]["schema"] == 1
    assert {"figures", "bars", "now", "since", "findings", "ranks", "comm", "memory"} <= set(
        told[0]
    )
    assert all(seconds > 0 for seconds in rests)


def test_the_manual_names_each_key_of_the_json() -> None:
    manual = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", manual.partition("| key | |")[2], re.MULTILINE)
    named = [key for row in rows for key in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(document(picture_of(SAMPLES / "zero3_0.19.8.log")))


def test_a_job_is_watched_until_nobody_reads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Job(tmp_path, 2).run(3)
    reads, rests = iter([True, True, False]), list[float]()
    monkeypatch.setattr(headless, "put", lambda _: next(reads))
    headless.follow(Watch([str(tmp_path)]), 0.0, rests.append)
    assert len(rests) == 2


def test_findings_in_json_have_what_the_report_gives_them() -> None:
    told = document(picture_of(SAMPLES / "neox_pipeline_2023.log"))
    first = told["findings"][0]
    assert first["rule"] == "pipeline-bubble"
    assert first["evidence"][0]["line"] > 0
    assert first["advice"][0]["setting"]
    json.dumps(told, allow_nan=False)


def test_the_picture_tells_the_parts_of_a_step_that_a_report_shows() -> None:
    path = SAMPLES / "zero3_0.19.8.log"
    text = "\n".join(lines(picture_of(path), 200))
    told = [part for part in overview(load(path)).parts if not part.inside]
    assert {"compute or communication", "no timer"} < {part.name for part in told}
    for part in told:
        assert f"{part.label} {part.sign}{format_share(part.share or 0)}" in text


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_of_the_picture_is_wider_than_the_terminal(width: int) -> None:
    said = list(lines(picture_of(SAMPLES / "straggler_0.19.8.log"), width))
    assert max(map(len, said)) <= width
    assert "  warning   Communication (85 % of a step) does not overlap" in "\n".join(said)


def test_once_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DsprofError, match="no such file"):
        headless.once(Watch([str(tmp_path / "absent")]), as_json=False)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "run.log: is empty"),
        ((ROOT / "docs" / "page.png").read_bytes(), "run.log: is a binary file, not a log"),
        (random.Random(7).randbytes(3000), "run.log: is a binary file, not a log"),
        (gzip.compress(step_line(1)), "run.log: is compressed: it does not grow"),
    ],
    ids=["empty", "picture", "random bytes", "compressed"],
)
def test_once_of_what_never_becomes_a_log_is_an_error(
    tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "run.log").write_bytes(content)
    with pytest.raises(DsprofError) as raised:
        headless.once(Watch([str(tmp_path / "run.log")]), as_json=False)
    assert said in str(raised.value)


def test_once_of_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DsprofError) as raised:
        headless.once(Watch([str(tmp_path)]), as_json=False)
    assert "the folder holds no logs and no recordings" in str(raised.value)


def test_once_waits_for_the_first_step_of_a_log_that_has_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.log").write_text("loading the model\n")
    headless.once(Watch([str(tmp_path / "run.log")]), as_json=False)
    assert capsys.readouterr().out.startswith("waiting\n  no line shows a step yet")


def test_what_a_log_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    hostile = (
        b"\x1b]0;title\x07\x1b[31mRuntimeError: CUDA out of memory. \xe2\x80\xae[bold]x[/bold]\n"
    )
    path.write_bytes(step_line(1) + b"[rank0]: Traceback\n[rank0]: " + hostile + step_line(2))
    said = "\n".join(lines(picture_of(path)))
    assert "out of memory" in said
    assert "[bold]x[/bold]" in said
    assert not {c for c in said if not c.isprintable()} - {"\n"}


def test_several_logs_are_one_run(tmp_path: Path) -> None:
    for rank, steps in enumerate([(1, 2, 3), (4, 5, 6)]):
        (tmp_path / f"run_rank{rank}.log").write_bytes(b"".join(map(step_line, steps)))
    picture = picture_of(tmp_path)
    assert [bar.step for bar in picture.bars] == [1, 2, 3, 4, 5, 6]


def test_what_is_said_of_ranks_takes_no_more_room_than_they_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Job(tmp_path, 4).run(30, slow={2: 60})
    headless.once(Watch([str(tmp_path)]), as_json=False)
    ranks = capsys.readouterr().out.partition("\nRanks\n")[2].splitlines()
    assert ranks[1] == "  rank 2  node-0  running  step 30  late by +60.0 ms, waits 20.0 ms"
    assert ranks[2].startswith("  rank 0  node-0  running  step 30  late by 0 s, ")


def test_what_there_is_no_room_for_is_marked_as_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    end = f"ValueError: {'many words ' * 40}and the last\n"
    path.write_bytes(b"[rank0]: Traceback (most recent call last):\n[rank0]: " + end.encode())
    problems = " ".join(lines(picture_of(path))).partition("Problems ")[2]
    assert " words… " in re.sub(" +", " ", problems)
    assert "last" not in problems
    rows = [
        RankRow(0, "worker-17.cluster.example", "running", 5, *(1.0, (), 0.0, 0.0, None)),
        RankRow(1, "worker-17", "running", 5, *(1.0, (), 0.0, 0.0, None)),
    ]
    said = "\n".join(lines(replace(picture_of(path), ranks=RankTable(rows=tuple(rows)))))
    assert "rank 0  worker-17.clust…  running" in said
    assert "rank 1  worker-17         running" in said


def test_once_tells_whatever_figures_a_job_has(tmp_path: Path) -> None:
    Job(tmp_path, 2).run(3)
    figures = Figures(
        total_steps=1000,
        eta=3600.0,
        seconds=2.0,
        samples_per_second=12.0,
        tokens_per_second=24_576.0,
        tflops=93.4,
        loss=2.5,
        seconds_apart=5.0,
    )
    full = MemoryRow(0, "node-0", 1 << 30, None, None, None, None, None, None, None, 600.0, ())
    picture = replace(
        picture_of(tmp_path),
        state="running",
        figures=figures,
        launches=2,
        memory=(full,),
        ranks=RankTable(
            rows=(RankRow(1, "node-0", "silent", 3, None, (), None, None, "all_reduce"),)
        ),
    )
    said = " ".join(" ".join(lines(picture, 400)).split())
    assert said.startswith(
        "running · step 3 of 1,000 · 2.00 s per step, one every 5.00 s · 12 samples/s · loss 2.5 · "
        "ETA 1 h 00 min · 24,576 tokens/s · 93.4 TFLOP/s a GPU · 2 ranks · launch 2 "
    )
    assert "rank 1 node-0 silent step 3 in all_reduce" in said
    assert "rank 0: allocated 1.00 GiB, full in 10 min 00 s" in said
    assert "ETA" not in " ".join(lines(replace(picture, state="silent")))


def test_of_a_folder_in_which_nothing_is_recorded_yet_it_is_told_where_ranks_stand(
    tmp_path: Path,
) -> None:
    stands(tmp_path, 0)
    watch = Watch([str(tmp_path)])
    with pytest.raises(DsprofError, match="Rank 0 stood in wait"):
        headless.once(watch, as_json=False)
    assert "Rank 0 stood in wait" in watch.refresh(0.1).note


def test_what_cannot_be_followed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not waited for in vain: a pipe by its name cannot be read again, and nobody types a log."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for name in (str(pipe), "/dev/null"):
        with pytest.raises(DsprofError, match="is a pipe or a device"):
            live([name], once=True)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    with pytest.raises(DsprofError, match="standard input is a terminal"):
        live(["-"], once=True)


def test_a_folder_that_may_not_be_looked_into_is_told_in_words(tmp_path: Path) -> None:
    feed = Watch([str(tmp_path)]).feed
    with feed._told("runs"):
        raise PermissionError(13, "Permission denied")
    assert feed.faults == {"runs": "runs: cannot be read: Permission denied"}
