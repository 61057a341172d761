"""The screens under their keys."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from dsprof.errors import DsprofError
from dsprof.live import apart as apart_program
from dsprof.live import dialogs, panes
from dsprof.live.apart import Apart
from dsprof.live.app import Live
from dsprof.live.chart import Chart
from dsprof.live.grid import Grid
from dsprof.live.logview import LogView
from dsprof.live.screens import SCREENS
from dsprof.live.text import lines
from dsprof.live.watch import Watch
from dsprof.text.words import PROBLEM
from tests.live.jobs import Job
from tests.live.screens import (
    apart,
    app_of,
    drive,
    folder,
    idle,
    picture,
    read_and_left,
    settle,
    svg_of,
    text_of,
)
from tests.live.test_log import step_line

KEPT = Path(__file__).parent / "kept"
SIZES = ((80, 24), (160, 48))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("colour", [True, False], ids=["colour", "plain"])
def test_every_screen_looks_as_it_was_agreed(size: tuple[int, int], colour: bool) -> None:
    """As a picture, and letter by letter where there is no colour: one after the other, for to
    start takes longer than to look.

    `DSPROF_KEEP=1` writes what is seen as agreed: look at it before you commit it.
    """
    app = app_of(colour=colour)
    seen: dict[Path, str] = {}

    async def keys(pilot: Pilot[None]) -> None:
        for number, name in enumerate(SCREENS, 1):
            await pilot.press(str(number))
            await settle(pilot)
            file = KEPT / f"{name}-{size[0]}x{size[1]}.{'svg' if colour else 'txt'}"
            seen[file] = svg_of(app) if colour else text_of(app) + "\n"

    drive(app, keys, size)
    for file, text in seen.items():
        if os.environ.get("DSPROF_KEEP"):
            KEPT.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8"), file.name


def test_problems_are_called_in_words_as_on_the_page_and_in_the_text() -> None:
    seen = picture()
    assert "root-cause" in {row.kind for row in seen.problems}
    columns, rows = panes.problems(seen)
    called = [PROBLEM[row.kind] for row in seen.problems]
    assert columns[1].title == "problem"
    assert [row.cells[1].text for row in rows] == called
    said = " ".join(" ".join(lines(seen, 200)).split())
    assert all(f"{what}: " in said for what in called[-3:])


def test_a_finding_opens_with_how_sure_it_is_also_where_it_costs_nothing() -> None:
    seen = picture()
    dead = next(one.finding for one in seen.findings if one.finding.rule == "rank-died")
    assert dead.seconds_per_step is None
    shown = [str(part) for part in dialogs._finding(replace(dead, confidence="medium"), 0.2)]
    assert "medium confidence" in shown


def test_tab_goes_round_the_screens_and_back() -> None:
    app = app_of()
    shown: list[str] = []

    async def keys(pilot: Pilot[None]) -> None:
        for key in ["tab"] * len(SCREENS) + ["shift+tab"]:
            await pilot.press(key)
            shown.append(app.screen_name)

    drive(app, keys)
    assert shown == [*SCREENS[1:], SCREENS[0], SCREENS[-1]]


def test_a_rank_opens_with_its_own_steps_and_closes() -> None:
    app = app_of()
    seen: list[str] = []

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("2", "home", "enter")
        seen.extend(await read_and_left(pilot))

    drive(app, keys)
    assert "rank 5 on node-0" in seen[0]
    assert "60.0 ms later per step than the median rank" in " ".join(
        seen[0].replace("│", "").split()
    )
    assert "rank 5 on node-0" not in seen[1]


def test_a_finding_leads_to_the_line_that_proves_it_and_back() -> None:
    app = app_of()
    seen: list[str] = []

    async def keys(pilot: Pilot[None]) -> None:
        grid = app.query_one("#findings", Grid)
        died = [row.key for row in grid.rows if "SIGKILL" in row.cells[2].text]
        grid.go(died[0])
        await pilot.press("enter")
        await settle(pilot)
        seen.append(text_of(app))
        await pilot.press("enter")
        await settle(pilot)
        seen.extend([app.screen_name, text_of(app)])
        chosen = app.query_one("#log-grid", Grid).chosen
        seen.append(str(chosen))
        await pilot.press("1")
        seen.append(app.screen_name)

    drive(app, keys)
    assert "critical: rank-died" in seen[0]
    assert "What to do" in seen[0]  # of a look at dmesg it is not to change
    assert seen[1] == "log"
    assert seen[3] == "103"
    assert seen[4] == "overview"


def test_the_first_finding_stays_chosen_until_another_is() -> None:
    app = app_of()
    chosen: list[object] = []

    async def keys(pilot: Pilot[None]) -> None:
        grid = app.query_one("#findings", Grid)
        for press in ("home", "down"):
            await pilot.press(press)
            rows = grid.rows
            grid.fill(grid.columns, [rows[-1], *rows[:-1]])
            chosen.extend([rows[grid.cursor - 1].key, grid.chosen])

    drive(app, keys)
    assert chosen[0] == chosen[1]
    assert chosen[2] == chosen[3]


def test_a_search_goes_up_from_the_end_and_on() -> None:
    app = app_of()
    found: list[object] = []

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"SIGTERM", "enter")
        await settle(pilot)
        grid = app.query_one("#log-grid", Grid)
        found.append(grid.chosen)
        await pilot.press("n")
        found.append(grid.chosen)
        await pilot.press("N")
        found.append(grid.chosen)
        await pilot.press("escape")
        found.append(app.query_one(LogView).sought)

    drive(app, keys)
    assert isinstance(found[0], int)
    assert isinstance(found[1], int)
    assert found[1] < found[0]
    assert found[2:] == [found[0], ""]


def test_a_search_shows_what_it_found_beyond_the_right_edge(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    told = b"".join(map(step_line, range(1, 4)))
    far = f"{'x' * 300}NEEDLE{'y' * 300}\n{'x' * 290} NEEDLE\nNEEDLE\n"
    path.write_bytes(told + far.encode())
    app = Live(Watch([str(path)]), every=0.05)
    shown: list[str] = []
    places: list[int] = []

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("6", "slash", *"needle", "enter")
        for key in ("n", "n", "N", "escape"):
            await settle(pilot)
            shown.append(text_of(app))
            places.append(int(app.query_one("#log-grid", Grid).scroll_offset.x))
            await pilot.press(key)
        await settle(pilot)
        places.append(int(app.query_one("#log-grid", Grid).scroll_offset.x))

    drive(app, keys)
    assert all("NEEDLE" in screen for screen in shown)
    assert "xNEEDLEy" in shown[2]
    assert places[0] == 0  # the last line needs no scrolling
    assert places[1] == places[2] == places[3] > 0  # what can be seen stays where it is
    assert places[4] == 0


def test_frozen_means_frozen(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"".join(map(step_line, range(1, 4))))
    app = Live(Watch([str(path)]), every=0.05)
    shown: list[int | None] = []

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("p")
        with path.open("ab") as file:
            file.write(step_line(4))
        await pilot.pause(1.0)
        shown.append(app.picture.step if app.picture else None)
        assert "FROZEN at " in text_of(app)
        await pilot.press("p")
        for _ in range(100):
            if app.picture and app.picture.step == 4:
                break
            await pilot.pause(0.05)
        shown.append(app.picture.step if app.picture else None)

    drive(app, keys)
    assert shown == [3, 4]


def test_the_report_of_now_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_of()
    here = Path(folder().name)  # what is watched has names relative to it
    monkeypatch.chdir(here)

    def written() -> str:
        return "".join(p.read_text(encoding="utf-8") for p in here.glob("dsprof-live-*.html"))

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("e")
        for _ in range(600):
            await pilot.pause(0.1)
            if "</html>" in written():
                return

    drive(app, keys)
    assert "wait for rank 5" in written()


def test_the_report_is_written_from_a_dialog_too(monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_of()
    asked: list[Path] = []
    monkeypatch.setattr(app.job, "report", asked.append)

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        await settle(pilot)
        await pilot.press("e")
        await settle(pilot)

    drive(app, keys)
    assert [path.suffix for path in asked] == [".html"]


def test_the_key_that_opens_the_help_closes_it() -> None:
    app = app_of()

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        await settle(pilot)
        assert "another screen" in text_of(app)
        await pilot.press("question_mark")
        await settle(pilot)
        assert "another screen" not in text_of(app)

    drive(app, keys)


@pytest.mark.parametrize("bound", ["communication", "compute"])
def test_a_row_of_marks_is_there_where_communication_holds_a_step_back(bound: str) -> None:
    base = picture()
    app = app_of(replace(base, bars=tuple(replace(bar, bound=bound) for bar in base.bars)))

    async def keys(pilot: Pilot[None]) -> None:
        await settle(pilot)
        assert ("comm. ▲" in text_of(app)) == (bound == "communication")

    drive(app, keys)


def test_bars_of_records_are_not_called_steps() -> None:
    app = app_of(replace(picture(), step=None, records=50))
    seen: list[str] = []

    async def keys(pilot: Pilot[None]) -> None:
        await settle(pilot)
        seen.append(text_of(app))
        await pilot.press("2", "enter")
        seen.extend(await read_and_left(pilot))

    drive(app, keys)
    for shown in seen[:2]:
        assert "record 1 " in shown
        assert "step 1 " not in shown


def test_in_80_columns_neither_the_verdict_nor_why_a_table_is_empty_is_cut() -> None:
    base = picture()
    assert base.now is not None
    title = "72 % of a step is communication, " + "of which most is of a kind that is named, " * 5
    now = replace(base.now, title=f"{title}and the end")
    app = app_of(replace(base, now=now, since=now, comm=replace(base.comm, rows=())))
    seen: list[str] = []

    async def keys(pilot: Pilot[None]) -> None:
        await settle(pilot)
        seen.append(text_of(app))
        await pilot.press("3")
        await settle(pilot)
        seen.append(text_of(app))

    drive(app, keys)
    assert "and the end" in seen[0]
    assert "Search" in seen[0].splitlines()[-1]
    assert "in the DeepSpeed config" in " ".join(seen[1].split())


def test_help_lists_the_keys_and_light_turns() -> None:
    app = app_of()
    seen: list[str] = []

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        await settle(pilot)
        seen.append(text_of(app))
        await pilot.press("escape", "d")
        seen.append(app.theme)

    drive(app, keys)
    assert "write the HTML report" in seen[0]
    assert seen[1] == "dsprof-light"


@pytest.mark.parametrize("size", [(40, 10), (20, 5), (400, 100)])
def test_no_size_breaks_a_screen(size: tuple[int, int]) -> None:
    app = app_of()

    async def keys(pilot: Pilot[None]) -> None:
        for number in range(1, len(SCREENS) + 1):
            await pilot.press(str(number), "enter")
            await pilot.pause(0.05)
            await pilot.press("escape")
            assert "running" in text_of(app).lower() or "died" in text_of(app).lower()

    drive(app, keys, size)


def test_a_click_on_a_tab_shows_its_screen() -> None:
    app = app_of()

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.click("Tabs", offset=(14, 0))
        await settle(pilot)
        assert app.screen_name == "ranks"

    drive(app, keys)


def test_no_part_of_a_number_is_shown_and_arrows_lead_to_the_columns_beside() -> None:
    names = [f"phase_{number}" for number in range(10)]
    seconds = tuple(number + 0.25 for number in range(10))
    rows = tuple(
        replace(row, phases=seconds, host="a-host-of-some-length") for row in picture().ranks.rows
    )
    table = replace(picture().ranks, phases=tuple(names), medians=seconds, rows=rows)
    app = app_of(replace(picture(), ranks=table), colour=False)
    seen: list[str] = []

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("2")
        for _ in range(12):
            await settle(pilot)
            seen.append(text_of(app))
            await pilot.press("right")
        await pilot.press(*["left"] * 12)
        await settle(pilot)
        seen.append(text_of(app))

    drive(app, keys)
    assert seen[0] == seen[-1]
    heads = [screen.splitlines()[4] for screen in seen]
    assert heads[0].endswith("›")
    assert "at step" in heads[-2]
    assert "‹" in heads[-2]
    told = {" ".join(f"{n + 0.25:.2f} s".split()) for n in range(10)}
    for screen in seen:
        line = next(line for line in screen.splitlines()[5:] if line.split()[0] == "5")
        assert set(re.findall(r"(?<![+\w.])[\d.]+ s\b", line)) <= told, line
    assert {name for name in names if any(name in head for head in heads)} == set(names)


def test_a_terminal_that_grows_is_filled() -> None:
    app = app_of()
    seen: list[str] = []

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.resize_terminal(200, 60)
        await settle(pilot)
        seen.append(text_of(app))

    drive(app, keys, (40, 10))
    lines = seen[0].splitlines()
    assert len(lines) == 60
    assert "6 Log" in lines[2]
    assert "Search" in lines[-1]


def test_a_question_whose_answer_is_a_bug_is_answered() -> None:
    answer = apart_program._answer_of(lambda: 1 // 0, ())
    assert isinstance(answer, DsprofError)
    assert "ZeroDivisionError" in str(answer)


def test_a_key_is_answered_while_a_file_does_not_answer(tmp_path: Path) -> None:
    """A fifo that nobody writes to holds whoever opens it."""
    os.mkfifo(tmp_path / "run.log")
    job = Apart([str(tmp_path / "run.log")], 0.1)
    app = Live(job, every=0.1)
    seen: list[str] = []

    async def keys(pilot: Pilot[None]) -> None:
        while not job.asked:
            await pilot.pause(0.05)
        await pilot.press("2")
        await settle(pilot)
        seen.append(app.screen_name)

    async def run() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            await keys(pilot)

    try:
        apart(run())
    finally:
        job.close()
    assert seen == ["ranks"]


@pytest.mark.parametrize("own", [None, "mimalloc"])
def test_the_watching_process_gives_freed_memory_back_unless_the_user_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    if own:
        monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", own)
    Job(tmp_path, 2).run(30)
    job = Apart([str(tmp_path)], 0.1)
    try:
        job.refresh()
        told = Path(f"/proc/{job._process.pid}/environ").read_bytes().split(b"\0")
    finally:
        job.close()
    assert f"ARROW_DEFAULT_MEMORY_POOL={own or 'system'}".encode() in told
    assert b"MALLOC_TRIM_THRESHOLD_=131072" in told


def test_a_watch_that_was_killed_is_told_and_its_last_picture_stays(tmp_path: Path) -> None:
    Job(tmp_path, 2).run(30)
    job = Apart([str(tmp_path)], 0.1)
    app = Live(job)
    seen: list[str] = []

    async def keys(pilot: Pilot[None]) -> None:
        while app.picture is None or app.picture.step != 30:
            await pilot.pause(0.05)
        job.close()
        while app.watching.is_alive():
            await pilot.pause(0.05)
        seen.extend(await read_and_left(pilot))

    drive(app, keys)
    assert "not watched any more" in seen[0]
    assert "the watching process has ended: SIGKILL" in seen[0]
    assert "start dsprof live again" in " ".join(seen[0].split())
    assert seen[1].splitlines()[0].startswith(" NOT WATCHED · step 30")
    assert app.fault is not None


def test_a_watch_that_cannot_begin_says_why_and_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('planted')")
    monkeypatch.syspath_prepend(tmp_path)
    app = Live(Apart([str(tmp_path / "run")], 0.1))

    async def run() -> None:
        async with app.run_test() as pilot:
            while app.watching.is_alive():
                await pilot.pause(0.05)

    apart(run())
    assert app.picture is None
    assert app.fault is not None
    assert app.fault.what.startswith("the watching process has ended: File ")
    assert app.fault.what.endswith("ImportError: planted")


def test_a_watch_that_cannot_be_started_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "no-python"))
    with pytest.raises(DsprofError, match="cannot be started: No such file"):
        Apart([str(tmp_path)], 0.1)


def test_a_stalled_file_system_is_told() -> None:
    app = app_of()

    async def keys(pilot: Pilot[None]) -> None:
        app.job.asked = 1e-9  # they were asked long ago
        app._notice_stall()
        await pilot.pause(0.1)
        assert "the files have not answered for" in text_of(app)

    drive(app, keys)


def test_what_a_log_says_cannot_steer_the_screen(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    hostile = [
        b"\x1b]0;title\x07\x1b[2J\x1b[31mred \xe2\x80\xae reversed [bold]markup[/bold] [/]",
        b"[@click=app.quit()]press me[/] \x9b31m \xc2\x9b",
        b"y" * (2 << 20),
        b"\xff\xfe\x00broken",
    ]
    error = b"[rank0]: torch.OutOfMemoryError: CUDA out of memory. [bold red]\x1b[5m Tried"
    path.write_bytes(step_line(1) + b"\n".join(hostile) + b"\n" + error + b"\n" + step_line(2))
    app = Live(Watch([str(path)]), every=60)
    seen: list[str] = []

    async def keys(pilot: Pilot[None]) -> None:
        for number in range(1, len(SCREENS) + 1):
            await pilot.press(str(number))
            await settle(pilot)
            seen.append(text_of(app))
        await pilot.press("1", "home", "enter")
        await settle(pilot)
        seen.append(text_of(app))

    drive(app, keys, (120, 40))
    everything = "\n".join(seen)
    assert "[bold]markup[/bold]" in everything
    assert "[@click=app.quit()]press me[/]" in everything
    assert {c for c in everything if not c.isprintable()} <= {"\n"}


def test_an_empty_folder_explains_itself(tmp_path: Path) -> None:
    app = Live(Watch([str(tmp_path / "later")]), every=60)
    seen: list[str] = []

    async def keys(pilot: Pilot[None]) -> None:
        for number in range(1, len(SCREENS) + 1):
            await pilot.press(str(number))
            await settle(pilot)
            seen.append(text_of(app))

    drive(app, keys, (120, 30))
    assert "WAITING" in seen[0]
    assert f"waiting for {tmp_path / 'later'} to appear"[:60] in seen[0]
    assert "no rank has reported its phases yet" in seen[1]
    assert "comms_logger" in seen[2]
    assert "no failure was reported so far" in seen[4]


def test_a_picture_without_anything_is_drawn() -> None:
    bare = replace(picture(), bars=(), now=None, since=None, findings=(), step=None)

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("1")
        assert "no step has a time yet" in text_of(app)

    app = app_of(bare)
    drive(app, keys)


def test_before_the_steps_are_judged_no_screen_says_that_there_is_nothing() -> None:
    early = replace(
        picture(), bars=(), now=None, since=None, findings=(), problems=(), judged=False
    )  # fmt: skip
    seen: list[str] = []

    async def keys(pilot: Pilot[None]) -> None:
        for number in range(1, len(SCREENS)):
            await pilot.press(str(number))
            await settle(pilot)
            seen.append(text_of(app))

    app = app_of(early)
    drive(app, keys)
    for word in ("no step", "no verdict", "nothing", "no rank", "no single", "no line"):
        assert not [text for text in seen if word in text]


def test_the_parts_of_a_step_are_said_to_be_means_of_the_ranks() -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("1")
        await settle(pilot)
        assert "Mean of 16 ranks." in text_of(app)

    app = app_of()
    drive(app, keys)
    assert "  Mean of 16 ranks." in lines(picture(), 200)


def test_the_first_picture_has_its_legend_and_a_wider_screen_more_of_it() -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await pilot.pause(0.2)
        assert "communication 46 %" in text_of(app)
        await pilot.resize_terminal(20, 24)
        await pilot.pause(0.2)
        assert "communication 46 %" not in text_of(app)
        await pilot.resize_terminal(80, 24)
        await pilot.pause(0.2)
        assert "communication 46 %" in text_of(app)

    app = app_of()
    drive(app, keys)


def test_a_log_that_is_read_while_the_screens_are_taken_down_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Widgets go one by one: of two that are filled together, the first may be gone."""
    path = tmp_path / "run.log"
    path.write_bytes(step_line(1))
    app = Live(Watch([str(path)]), every=3600.0)  # no later picture asks for the log again

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("6")
        await settle(pilot)
        await app.query_one("#log-name").remove()
        with monkeypatch.context() as leaving:
            leaving.setattr(Live, "is_running", property(lambda _: False))
            app._find_tail(str(path))
            await idle(app)

    drive(app, keys)


def test_before_the_first_picture_a_terminal_without_colours_is_drawn_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = app_of(colour=False)

    async def look(pilot: Pilot[None]) -> None:
        app.query_one(Chart)._bars = None
        app.query_one(Chart).refresh()
        await settle(pilot)

    drive(app, look)
    assert app.return_code in {0, None}


@pytest.mark.parametrize("within", [[], ["?"], ["enter"], ["slash"]], ids=str)
def test_ctrl_c_quits_from_everywhere(within: list[str]) -> None:
    app = app_of()

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press(*within, "ctrl+c")
        await pilot.pause()
        assert app._exit

    drive(app, keys)


def test_a_key_behind_that_of_a_screen_is_for_that_screen() -> None:
    app = app_of()

    async def keys(pilot: Pilot[None]) -> None:
        app.action_show("ranks")
        assert app.focused is app.query_one("#ranks Grid")
        await pilot.pause()

    drive(app, keys)
