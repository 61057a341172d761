"""A picture that never changes, and what the screens make of it, letter by letter."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import chdir
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from textual.app import App
from textual.pilot import Pilot
from textual.worker import WorkerCancelled

from dsprof.live.app import Live
from dsprof.live.headless import settled
from dsprof.live.picture import Picture
from dsprof.live.watch import Watch
from tests.live.jobs import ROOT, Job

LOG = "sample_logs/killed_rank_torchrun_0.19.8.log"
Keys = Callable[[Pilot[None]], Awaitable[None]]


class Still(Watch):
    """A watch that has read everything, and whose picture is given."""

    still: Picture | None = None

    def refresh(self, seconds: float = 0.25) -> Picture:
        return super().refresh(seconds) if self.still is None else self.still


@cache
def watched() -> Still:
    """The run and the log of `folder`, read once under names that are the same everywhere."""
    with chdir(folder().name):
        watch = Still(["a", "run.log"])
        settled(watch)
    return watch


@cache
def folder() -> TemporaryDirectory[str]:
    """A finished run: 16 ranks on two nodes, rank 5 late, steps 41 on longer; and a log."""
    place = TemporaryDirectory(prefix="dsprof-")
    job = Job(Path(place.name) / "a", 16)
    job.run(40, slow={5: 60})
    job.run(10, slow={5: 60}, ms=150)
    for rank, writer in enumerate(job.writers):
        name = writer.name("allocated")
        for step in range(1, 51):
            writer.memory(name, (20 << 30) + step * rank * (1 << 20), step)
    job.close()
    shutil.copyfile(ROOT / LOG, Path(place.name) / "run.log")
    return place


@cache
def picture() -> Picture:
    """Of that run and a log beside it, at a fixed moment and from fixed places."""
    watched().still = None
    with chdir(folder().name):
        seen = settled(watched())
    fixed = [replace(one, since=seen.at - 75.0 * n) for n, one in enumerate(seen.findings)]
    return replace(
        seen, at=1.8e9, sources=("runs/a", "run.log"), idle=3.0,
        findings=tuple(replace(one, since=one.since - seen.at + 1.8e9) for one in fixed),
    )  # fmt: skip


def app_of(seen: Picture | None = None, *, colour: bool = True) -> Live:
    still = seen or picture()
    watched().still = still
    return Live(watched(), every=60, colour=colour)


def drive(app: Live, keys: Keys, size: tuple[int, int] = (80, 24)) -> None:
    """Run the app at that size and press keys once it has drawn."""

    async def run() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            while app.picture is None:
                assert app.watching.is_alive(), app.fault
                await pilot.pause(0.05)
            await pilot.pause()
            await keys(pilot)

    apart(run())


def apart(main: Coroutine[Any, Any, None]) -> None:
    """In a loop of its own, which runs within a browser's where pytest's worker has one open."""
    within = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        asyncio.run(main)
    finally:
        asyncio._set_running_loop(within)


async def settle(pilot: Pilot[None]) -> None:
    """Wait until what keys have asked for is on the screen."""
    await pilot.pause()
    await idle(pilot.app)
    await pilot.pause(0.05)


async def idle(app: App[None]) -> None:
    """Wait until no thread reads for the screens any more."""
    while any(not one.is_finished for one in app.workers):
        with contextlib.suppress(WorkerCancelled):  # a newer one of its group took its place
            await app.workers.wait_for_complete()


async def read_and_left(pilot: Pilot[None]) -> list[str]:
    """The letters on the screen, and those behind it once it is left."""
    await settle(pilot)
    shown = text_of(pilot.app)
    await pilot.press("escape")
    await settle(pilot)
    return [shown, text_of(pilot.app)]


def svg_of(app: Live) -> str:
    """The screen as a picture: colours and letters, without fonts from elsewhere."""
    drawn = app.export_screenshot(title="dsprof live")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    return re.sub(r"terminal-\d+", "screen", drawn).replace("Fira Code", "monospace")


def text_of(app: App[None]) -> str:
    """The letters on the screen, blanks at the ends of lines left out."""
    width, height = app.size
    lines = app.screen._compositor.render_strips()
    return "\n".join(strip.text[:width].rstrip() for strip in lines[:height])
