"""The file itself: what stands in it, under which policy, and what never may."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
from pathlib import Path

import pytest

import dsprof
from dsprof.charts.figure import plain
from dsprof.errors import DsprofError
from dsprof.page import render_page, write_page
from dsprof.page.pack import safe_json
from dsprof.run import load
from tests.conftest import SAMPLES
from tests.page.browsing import Written
from tests.page.runs import huge, made, with_rows

HOSTILE = "</script><script>window.hit=1</script>"


@pytest.fixture(scope="module")
def page() -> str:
    return render_page(made(12, 2))


def test_the_policy_allows_exactly_the_scripts_and_styles_of_the_page(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    told = policy[1].replace("&#39;", "'")
    script = page[page.rindex("<script>") + 8 : page.rindex("</script>")]
    style = page[page.index("<style>") + 7 : page.index("</style>")]
    assert told.startswith("default-src 'none'; script-src 'sha256-")
    assert _hash(script) in told
    assert _hash(style) in told
    assert "unsafe" not in told


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_nothing_of_the_page_lies_outside_the_file(page: str) -> None:
    head = page[: page.index('type="text/plain"')]
    assert not re.search(r'(?:src|href)="(?!#|data:)', head)
    assert "@import" not in head
    assert "url(" not in head.replace("url(#", "")


def test_the_badge_of_a_finding_is_its_severity(page: str) -> None:
    told = re.findall(r'class="badge badge-(\w+)">([^<]+)<', page)
    assert told
    assert all(severity == said for severity, said in told)


def test_no_element_carries_its_own_style_or_handler(page: str) -> None:
    assert not re.search(r"<[^>]+\s(?:style|on[a-z]+)=", page[: page.index('type="text/plain"')])


def test_hostile_words_never_become_elements(written: Written) -> None:
    page = written("hostile").read_text()
    assert HOSTILE not in page
    assert "&lt;/script&gt;&lt;script&gt;window.hit=1" in page
    assert page.count("<script") == 5  # theme, library, data, one track, the page's own


def test_a_log_whose_name_is_no_text_has_a_page(tmp_path: Path) -> None:
    log = tmp_path / os.fsdecode(b"lauf-\xfc.log")
    log.write_bytes((SAMPLES / "zero3_0.19.8.log").read_bytes())
    write_page(load(log), tmp_path / "page.html")
    assert "lauf-?.log" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_proof_that_files_are_of_another_job_leads_to_a_line_of_the_page() -> None:
    run = load([SAMPLES / "zero3_0.19.8.log", SAMPLES / "straggler_0.19.8.log"], processes=1)
    (place,) = run.repairs.set_index("name").loc[["other-jobs"], "source"]
    page = render_page(run)
    assert place not in set(run.told["source"])
    assert f'title="{Path(place).name}, line 1"' in page
    assert 'data-source="-1"' not in page


def test_letters_that_turn_the_writing_are_shown_as_escapes() -> None:
    turned = "run\u202egol.txt\u2066"
    run = with_rows(
        made(4, 2),
        {"kind": "problem", "name": "exception", "text": turned, "rank": 1, "source": turned},
        {"kind": "config", "name": turned, "text": turned, "source": turned},
        {"kind": "phase", "name": turned, "seconds": 0.4, "step": 2, "steps": 1, "rank": 0},
    )
    run.meta["sources"] = [turned]
    page = render_page(run)
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", page)
    assert "<title>run\\u202egol.txt\\u2066" in page
    assert plain(turned) == "run\\u202egol.txt\\u2066"  # phases and ranks of the charts


def test_json_in_a_script_element_cannot_end_it() -> None:
    packed = safe_json({"a": "</script>&\u2028"})
    assert not re.search("[<>&\u2028]", packed)
    assert json.loads(packed) == {"a": "</script>&\u2028"}


def test_the_page_holds_the_lines_its_numbers_point_at(written: Written) -> None:
    page = written("seed").read_text()
    block = re.search(r'id="data">([^<]+)<', page)
    assert block
    data = json.loads(gzip.decompress(base64.b64decode(block[1])))
    wanted = re.findall(r'data-source="(-?\d+)" data-line="(\d+)"', page)
    assert wanted
    assert all(line in data["lines"][source] for source, line in wanted)


def test_every_section_has_something_to_show_or_says_why_not(
    written: Written,
) -> None:
    for name in ("seed", "failure", "zero3", "megatron"):
        page = written(name).read_text()
        sections = re.findall(r'<section id="[a-z0-9-]+".*?</section>', page, re.DOTALL)
        assert len(sections) > 10
        for section in sections:
            assert re.search(r"<figure|<table|<article|<p class=\"(?:why|lead)|<h1", section)


def test_advice_in_words_is_not_set_as_code_and_a_key_is() -> None:
    page = render_page(load(SAMPLES / "neox_pipeline_2023.log"))
    advice = page[page.index('class="advice"') :]
    assert "<code>gradient_<wbr>accumulation_<wbr>steps</code>" in advice
    assert '<span class="label">Change</span> <p>number of pipeline stages: fewer</p>' in advice
    assert "</code>: twice as many, if it is the bubble</p>" in advice
    assert "</code>: <code>true</code></p>" in advice  # bf16.enabled: what to type


def test_keys_that_the_advice_names_are_marked_in_the_configuration(
    written: Written,
) -> None:
    page = written("comms").read_text()
    rows = re.findall(r'<tr class="advised"><th scope="row"><code>(.+?)</code>', page)
    rows = [row.replace("<wbr>", "") for row in rows]
    assert "zero_optimization.overlap_comm" in rows


def test_a_run_without_steps_still_has_a_page() -> None:
    empty = dsprof.run.from_events(made(2).recorded.iloc[:0].drop(columns="record"))
    page = render_page(empty)
    assert "No line that is understood says that an optimizer step ended." in page


def test_a_path_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DsprofError, match="cannot be written"):
        write_page(made(2), tmp_path / "no such folder" / "page.html")


def test_the_same_run_gives_the_same_page() -> None:
    assert render_page(made(12, 2)) == render_page(made(12, 2))


def test_a_hundred_thousand_steps_of_several_ranks_fit_into_ten_megabytes(written: Written) -> None:
    assert written("huge").stat().st_size < 10_000_000


def test_what_is_planted_in_the_huge_run_is_found() -> None:
    late, *others = huge(steps=10_000).findings
    assert (late.rule, late.ranks) == ("straggler-rank", (17,))
    assert [found.rule for found in others] == ["communication-bound", "slowdown"]
