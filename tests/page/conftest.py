"""Chromium for the tests of the page, and pages that are made once."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import Browser, Page

import dsprof
from dsprof.page import render_page
from tests.loaded import sample
from tests.page.browsing import WIDE, Open, Opened, Scheme, Shelf, Written
from tests.page.runs import gpus, huge, made, validated, with_rows
from tests.recording.recorded import record_pauses

SAMPLES = Path(__file__).parents[2] / "sample_logs"
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
#: Playwright asks where each error came from, and plotly.js throws and catches some as it starts:
#: to say so, V8 would read all of it again.
ALL_POSITIONS = "--js-flags=--no-enable-lazy-source-positions"
#: V8's last compiler does not pay for a page that is looked at for a moment.
IN_A_MOMENT = f"{ALL_POSITIONS},--no-turbofan"
#: What one page has compiled, others of its process need not.
ONE_PROCESS = "--process-per-site"
HOSTILE = (
    "</script><script>window.hit=1</script><img src=x onerror=window.hit=1><b>bold</b> {{7*7}}"
)


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    if CHROMIUM is None:
        pytest.skip("needs Debian's chromium (apt-get install chromium-headless-shell)")
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    return {"executable_path": CHROMIUM, "args": [*quiet, IN_A_MOMENT, ONE_PROCESS]}


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The page of a run by its name; each is made once, for all workers of pytest."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "pages"
    folder.mkdir(exist_ok=True)

    def write(name: str) -> Path:
        path = folder / f"{name}.html"
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                page = render_page(RUNS[name](folder))
                draft = path.with_suffix(".draft")
                draft.write_text(page, encoding="utf-8")
                draft.rename(path)
        return path

    return write


@pytest.fixture(scope="session")
def shelf(browser: Browser, written: Written, tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(browser, written, tmp_path_factory.mktemp("opened") / "page.html")


@pytest.fixture
def opened(shelf: Shelf) -> Iterator[Open]:
    """Opens a page by the name of its run; it must not complain or ask for anything.

    `fresh`: one that no test has looked at.
    """
    used: list[tuple[str, Opened]] = []

    def open_page(
        name: str, width: int = WIDE, scheme: Scheme = "light", *, fresh: bool = False
    ) -> Page:
        found = (shelf.open if fresh else shelf.take)(name, width, scheme)
        used.append((name, found))
        return found.page

    yield open_page
    complaints = [said for _, one in used for said in one.complaints]
    for name, one in used:
        shelf.give_back(name, one)
    assert complaints == []


def _sample(name: str) -> Callable[[Path], dsprof.Run]:
    return lambda _: sample(name)


def _megatron(folder: Path) -> dsprof.Run:
    """12,000 lines as Megatron prints them, one of them three times slower."""
    line = (
        " iteration {n:8d}/   12000 | consumed samples: {samples:12d} | elapsed time per"
        " iteration (ms): {ms:.1f} | learning rate: 1.500E-04 | global batch size:   512"
        " | lm loss: {loss:.6E}"
        " | loss scale: 65536.0 | grad norm: 1.234 | number of skipped iterations:   0"
        " | number of nan iterations:   0 |\n"
    )
    path = folder / "megatron.log"
    with path.open("w") as file:
        for n in range(1, 12_001):
            slow = 3 if n == 7000 else 1
            file.write(
                line.format(n=n, samples=512 * n, ms=slow * (1500 + n % 17), loss=10 / n**0.1)
            )
    return dsprof.load(path)


def _hostile(folder: Path) -> dsprof.Run:
    """Hostile words wherever a log can put them, with the log to quote."""
    path = folder / "hostile.log"
    path.write_text("\n".join(f"line {n} {HOSTILE}" for n in range(1, 41)))
    run = made(20, 2)
    run = with_rows(
        run,
        {"kind": "problem", "name": "exception", "text": HOSTILE, "rank": 1, "line": 5},
        {"kind": "problem", "name": HOSTILE, "text": "x", "host": HOSTILE, "line": 6},
        {"kind": "config", "name": HOSTILE, "text": HOSTILE, "line": 7},
        {"kind": "config", "name": "network", "text": HOSTILE, "line": 7},
        {
            "kind": "phase",
            "name": HOSTILE,
            "raw": HOSTILE,
            "seconds": 30.0,
            "step": 9,
            "steps": 1,
            "rank": 0,
        },
        {
            "kind": "comm",
            "name": HOSTILE,
            "seconds": 0.1,
            "bytes": 1 << 20,
            "count": 1,
            "step": 9,
            "rank": 0,
        },
        {
            "kind": "memory",
            "name": "allocated",
            "bytes": 1 << 30,
            "step": 9,
            "rank": 0,
            "text": HOSTILE,
        },
    )
    recorded = run.recorded.assign(source=str(path))
    return dsprof.run.from_events(recorded.drop(columns="record"), meta={"sources": [str(path)]})


def _validated(folder: Path) -> dsprof.Run:
    return dsprof.load(validated(folder))


def _broken_loss(_: Path) -> dsprof.Run:
    """40 steps; the loss of two of them is printed and is no number."""
    loss = {"kind": "metric", "name": "loss", "steps": 1, "rank": 0}
    return with_rows(
        made(40),
        loss | {"value": float("nan"), "text": "nan", "step": 20},
        loss | {"value": float("inf"), "step": 21},
    )


def _turned(_: Path) -> dsprof.Run:
    """A source and a phase whose names turn the direction of writing."""
    turned = {"kind": "phase", "name": "step\u202egol", "seconds": 0.4, "steps": 1, "rank": 0}
    return with_rows(made(4), turned | {"step": 2})


def _two_launches(_: Path) -> dsprof.Run:
    """Steps 1 to 5, and after a restart 1 to 12."""
    first, then = made(5).recorded, made(12).recorded
    both = pd.concat([first, then.assign(segment=1, line=then["line"] + 100)])
    return dsprof.run.from_events(both.drop(columns="record"), meta={"sources": ["made.log"]})


def _failed_first(folder: Path) -> dsprof.Run:
    """The same behind a launch that fails before its first step."""
    later = _two_launches(folder).recorded.astype(object)
    later = later.assign(segment=later["segment"] + 1)
    words = {"kind": "problem", "name": "exception", "text": "boom", "source": "made.log"}
    failed = pd.DataFrame([words | {"segment": 0, "engine": 0, "line": 1}])
    both = pd.concat([failed, later.drop(columns="record")], ignore_index=True)
    return dsprof.run.from_events(both, meta={"sources": ["made.log"]})


def _recorded(_: Path) -> dsprof.Run:
    """A run whose rows come from a recording, which has no lines of text."""
    rows = made(12).recorded.astype({"source": "str"}).assign(source="runs/a/rank-0.dsprof")
    meta = {"sources": ["runs/a/rank-0.dsprof"]}
    return dsprof.run.from_events(rows.drop(columns="record"), meta=meta)


def _lanes(folder: Path) -> dsprof.Run:
    """A recording of two ranks, of which one comes 20 ms later to backward."""
    return dsprof.load(record_pauses(folder / "lanes", {}, {"forward": 20}))


def _many_failures(_: Path) -> dsprof.Run:
    """One failure on each of twelve ranks, a word of it long, and memory of all of them."""
    long = "[/opt/build/third_party/gloo/gloo/transport/tcp/pair.cc:553]"
    failed = {"kind": "problem", "name": "connection", "text": f"{long} Connection closed by peer"}
    at = pd.Timestamp("2026-11-21 07:00")
    rows = [{"rank": n, "line": 50 + n, "at": at + pd.Timedelta(seconds=n)} for n in range(12)]
    memory = {"kind": "memory", "name": "host_process"}
    grown = [{"rank": n, "step": s, "bytes": (n + s) << 30} for n in range(12) for s in range(1, 5)]
    return with_rows(made(4), *(failed | row for row in rows), *(memory | row for row in grown))


def _csv(_: Path) -> dsprof.Run:
    return dsprof.load([SAMPLES / "csv_monitor_0.16.9", SAMPLES / "csv_monitor_0.16.9.log"])


RUNS: dict[str, Callable[[Path], dsprof.Run]] = {
    "seed": _sample("neox_pipeline_2023"),
    "failure": _sample("killed_rank_torchrun_0.19.8"),
    "zero3": _sample("zero3_0.19.8"),
    "comms": _sample("comms_verbose_0.16.9"),
    "megatron": _megatron,
    "validated": _validated,
    "hostile": _hostile,
    "broken_loss": _broken_loss,
    "turned": _turned,
    "two_launches": _two_launches,
    "failed_first": _failed_first,
    "recorded": _recorded,
    "csv": _csv,
    "many_failures": _many_failures,
    "huge": lambda _: huge(ranks=8),
    "gpus": lambda folder: gpus(folder / "gpus"),
    "lanes": _lanes,
}
