"""What a Run shows of itself at a prompt and in a notebook."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from dsprof.run import from_events, load
from tests.conftest import SAMPLES
from tests.run.run_rows import events, metric

HOSTILE = '<script>alert("1")</script> & <img src=x onerror=alert(2)>'


def test_a_notebook_shows_the_verdict_how_sure_it_is_what_to_change_and_the_steps() -> None:
    run = load(SAMPLES / "zero2_accumulation_0.16.9.log")
    verdict = run.findings[0]
    (change,) = verdict.advice
    lines = run._repr_html_().removeprefix("<div>").removesuffix("</div>").split("<br>")
    assert [unescape(line) for line in lines] == [
        f"<b>{verdict.title}</b>",
        f"{verdict.confidence} confidence",
        f"{change.setting}: {change.now} → {change.to}",
        "40 optimizer steps printed",
    ]
    assert repr(run) == "Run(1,294 events, 40 steps)"


def test_a_change_from_nothing_known_has_no_arrow() -> None:
    shown = load(SAMPLES / "quiet_0.19.8.log")._repr_html_()
    assert "<br>wall_clock_breakdown: true<br>0 optimizer steps printed</div>" in shown


def test_one_step_is_one_step_in_a_notebook() -> None:
    run = from_events(events([metric("loss", 1, 2.5)]))
    assert run._repr_html_().endswith("<br>1 optimizer step printed</div>")


def test_a_log_that_holds_a_script_shows_its_letters_in_a_notebook(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    trace = ["Traceback (most recent call last):", '  File "a.py", line 1, in <module>']
    lines = [*trace, f"RuntimeError: {HOSTILE}"]
    log.write_text("".join(f"[rank1]: {line}\n" for line in lines), encoding="utf-8")
    run = load(log)
    assert "<script>" in run.findings[0].title
    shown = run._repr_html_()
    assert set(re.findall(r"<[^>]*>", shown)) == {"<div>", "</div>", "<b>", "</b>", "<br>"}
    assert run.findings[0].title in unescape(shown)


def test_what_a_log_says_of_a_setting_is_escaped_in_a_notebook() -> None:
    from dsprof.findings import Advice, Finding

    run = from_events(events([metric("loss", 1, 2.5)]))
    run.__dict__["findings"] = [
        Finding("x", "info", "t", "s", advice=(Advice(HOSTILE, HOSTILE, HOSTILE, "why"),))  # type: ignore[arg-type]
    ]
    assert "<script" not in run._repr_html_()
    assert "<img" not in run._repr_html_()
