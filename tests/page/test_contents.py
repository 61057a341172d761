"""The pieces of a page: packing, excerpts, words, verdict, sections."""

from __future__ import annotations

import base64
import gzip
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsprof.charts import phase_table
from dsprof.events import Class, Severity
from dsprof.findings import Advice, Evidence, Finding
from dsprof.page.communication import comm_section
from dsprof.page.configuration import settings
from dsprof.page.contents import contents
from dsprof.page.excerpts import BUDGET, Wanted, excerpts, shown
from dsprof.page.facts import facts
from dsprof.page.model import Among, Place
from dsprof.page.pack import FULL, SHORT, pack_columns
from dsprof.page.resources import memory_section, training_section
from dsprof.page.steps import phase_section, time_section
from dsprof.page.tracks import STEPS, line_spans, thinned, with_broken_losses
from dsprof.page.trust import problem_section
from dsprof.page.verdict import told, verdict
from dsprof.page.words import ranges
from dsprof.run import Run, from_events, load
from dsprof.text.words import gain
from tests.findings.plants import WELL, run_of, steps
from tests.findings.ranks.test_stragglers import ranks
from tests.findings.test_engines import in_turns
from tests.findings.unknown.test_between_steps import is_twentieth
from tests.findings.unknown.test_between_steps import job as between_steps
from tests.loaded import sample
from tests.page.runs import gpus, made, with_rows


def unpacked(packed: str, index: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """What the page's script reads back."""
    data, start, found = gzip.decompress(base64.b64decode(packed)), 0, {}
    for column in index:
        size = 4 * column["size"]
        planes = np.frombuffer(data[start : start + size], np.uint8).reshape(4, -1)
        words = np.ascontiguousarray(planes.T)
        whole = column["type"] == "i"
        values = words.view("<i4" if whole else "<f4").ravel()
        found[column["name"]] = np.cumsum(values) if whole else values
        start += size
    return found


@given(st.lists(st.integers(-(2**30), 2**30 - 1), min_size=1))
def test_whole_numbers_come_back_as_they_were(values: list[int]) -> None:
    back = unpacked(*pack_columns({"step": np.array(values)}, SHORT))
    assert list(back["step"]) == values


@given(st.lists(st.floats(1e-6, 1e6) | st.just(float("nan")), min_size=1))
def test_short_numbers_keep_four_digits(values: list[float]) -> None:
    back = unpacked(*pack_columns({"seconds": np.array(values)}, SHORT))
    np.testing.assert_allclose(back["seconds"], values, rtol=1e-4)


def test_full_numbers_keep_all_a_float_has() -> None:
    values = np.array([0.1, 1 / 3, np.nan, np.inf])
    back = unpacked(*pack_columns({"x": values}, FULL))
    np.testing.assert_array_equal(back["x"], values.astype(np.float32))


def lines_of(count: int) -> list[bytes]:
    return [f"line {n}".encode() for n in range(1, count + 1)]


def test_a_line_is_kept_with_its_neighbours() -> None:
    wanted = Wanted()
    wanted.ask(Place("a.log", 10))
    found = excerpts(wanted, lambda _: [lines_of(20)])
    assert list(found["a.log"]) == [7, 8, 9, 10, 11, 12, 13]
    assert found["a.log"][10] == "line 10"


def test_lines_at_the_ends_of_a_source_have_fewer_neighbours() -> None:
    wanted = Wanted()
    wanted.ask(Place("a.log", 1))
    wanted.ask(Place("a.log", 20))
    found = excerpts(wanted, lambda _: [lines_of(20)])
    assert list(found["a.log"]) == [1, 2, 3, 4, 17, 18, 19, 20]


def test_what_is_asked_first_is_kept_when_room_ends() -> None:
    wanted = Wanted()
    wanted.ask(Place("a.log", 5000))
    for number in range(1, 5000):
        wanted.ask(Place("a.log", number), context=0)
    found = excerpts(wanted, lambda _: [[b"x" * 1000] * 5001])["a.log"]
    assert 5000 in found
    assert 4000 <= len(found) < 5000
    assert sum(map(len, found.values())) <= BUDGET + 2000


def test_lines_that_are_read_in_portions_keep_their_numbers() -> None:
    wanted = Wanted()
    for number in (1, 5, 6, 20):
        wanted.ask(Place("a.log", number), context=0)
    lines = lines_of(20)
    found = excerpts(wanted, lambda _: [lines[:5], [], lines[5:7], lines[7:]])
    assert found["a.log"] == {n: f"line {n}" for n in (1, 5, 6, 20)}


def test_a_source_that_is_gone_gives_no_lines() -> None:
    wanted = Wanted()
    wanted.ask(Place("gone.log", 3))
    assert excerpts(wanted, lambda _: []) == {}


def test_control_letters_of_a_line_are_made_visible() -> None:
    assert shown(b"\x1b[31mred\x00 \xff\n") == "␛[31mred␀ �"
    assert shown("a\u202eb".encode()) == "a\\u202eb"


def test_a_very_long_line_is_cut() -> None:
    assert len(shown(b"x" * 10_000)) < 1300


def test_a_place_needs_a_source_and_a_line() -> None:
    assert Place.of("a.log", 3) == Place("a.log", 3)
    assert Place.of("", 3) is None
    assert Place.of("a.log", pd.NA) is None
    assert Place.of(np.nan, 3) is None


def test_a_gain_is_said_in_seconds_and_in_parts_of_the_step() -> None:
    assert "1.00 s of 5.00 s per step" in gain((0.5, 1.0), 5.0)
    assert gain(None, 5.0) == ""


def test_a_gain_that_may_be_nothing_is_said_by_its_end() -> None:
    run = made(20)
    run.__dict__["findings"] = [finding(gain=(0.0, 0.8))]
    assert verdict(run).gain == "up to 800 ms of 1.60 s per step (50 %)"
    assert "Gain up to 800 ms per step" in told(run.findings[0]).note


def test_neighbouring_ranks_are_said_as_a_range() -> None:
    assert ranges([3, 0, 1, 2, 7]) == "0 to 3, 7"
    assert ranges(list(range(0, 40, 2)), most=3) == "0, 2, 4 and 17 more"


def finding(**more: object) -> Finding:
    base = {
        "rule": "communication-bound",
        "severity": Severity.CRITICAL,
        "title": "t",
        "summary": "s",
    }
    return Finding(**(base | more))  # type: ignore[arg-type]


def test_the_first_screen_has_the_number_that_proves_it_and_its_line() -> None:
    run = made(20)
    proof = (Evidence("", None, "derived"), Evidence("made.log", 7, "text"))
    run.__dict__["findings"] = [finding(share=0.5 / 1.6, seconds_per_step=0.5, evidence=proof)]
    shown_ = verdict(run)
    assert shown_.number == "31 %"
    assert shown_.proves == "of step time is communication: 500 ms of 1.60 s per step"
    assert shown_.among == Among((("", Place("made.log", 7)),), 1)


def test_a_share_is_of_what_its_title_says() -> None:
    """Where a step is the sum of its timers, none of them times all of it."""
    run = made(20)
    title = "31 % of what is timed of a step is communication between ranks"
    only = finding(title=title, share=0.5 / 1.6, seconds_per_step=0.5)
    run.__dict__["findings"] = [only]
    assert verdict(run).proves.startswith("of what is timed of a step is communication: 500 ms")
    assert told(only).cost == "31 % of what is timed of a step"


def undivided(run: Run) -> Run:
    """The same, but no timer says where its steps go."""
    nothing = dict.fromkeys([str(name) for name in Class], np.nan)
    run.__dict__["steps"] = run.steps.assign(**nothing, mixed=np.nan)
    return run


def test_of_time_nobody_accounts_for_the_step_is_the_number_and_no_share() -> None:
    run = undivided(made(20))
    run.__dict__["findings"] = [finding(rule="unaccounted-time", share=1.0, seconds_per_step=1.6)]
    shown_ = verdict(run)
    assert (shown_.number, shown_.proves) == ("1.60 s", "per step, and no line says on what")
    assert shown_.among == shown_.step.among
    run.__dict__["findings"] = [finding(rule="unaccounted-time", phase="forward")]
    mixed = verdict(run)
    assert (mixed.number, mixed.proves) == (
        "1.60 s",
        "per step; what of it is communication is not known",
    )
    assert shown_.among
    assert shown_.among.of == 19
    run.__dict__["findings"] = [finding(rule="unaccounted-time", share=0.4, seconds_per_step=0.6)]
    assert verdict(run).number == "40 %"


def test_a_step_that_timers_divide_is_not_said_to_be_told_by_no_line() -> None:
    """One that is too few to judge: it warms up."""
    run = made(1)
    run.__dict__["findings"] = [finding(rule="unaccounted-time")]
    shown_ = verdict(run)
    assert shown_.parts
    assert (shown_.number, shown_.proves) == ("1.60 s", "per step")


def test_the_table_of_phases_ends_with_what_no_timer_covers() -> None:
    run = made(3)
    steps = run.steps.assign(seconds=2.0, whole_seconds=2.0)  # of which timers tell 1.6 s
    section = phase_section(run, 0, steps, phase_table(run.phases, steps), many=False)
    table = section.charts[0].table
    assert table
    assert [cell.text for cell in table.rows[-1]][:4] == ["no timer", "", "0.40 s", "20 %"]


def test_the_bar_says_that_it_is_a_mean_where_the_verdict_is_about_one_rank() -> None:
    run = run_of(ranks(30, 2, 0.3))
    assert run.findings[0].rule == "straggler-rank"
    assert "Mean of 4 ranks; the verdict's " in verdict(run).mean
    assert verdict(run).mean.endswith(" is of those that wait for rank 2.")


def test_one_step_is_no_range_of_steps() -> None:
    run = made(1)
    table = phase_table(run.phases, run.steps)
    section = phase_section(run, 0, run.steps, table, many=False)
    assert section.words == "Step 1 alone, the mean of all ranks that tell."
    assert dict(verdict(run).facts)["Steps"].text == "1 step printed, step 1"


def test_the_chart_of_one_whole_step_says_that_it_is_one(tmp_path: Path) -> None:
    lines = (Path(__file__).parents[2] / "sample_logs/slow_data_0.19.8.log").read_text()
    path = tmp_path / "short.log"
    path.write_text(lines[: lines.index("step=20,")])
    run = load(path)
    section = time_section(0, run.steps, many=False)
    assert "in the one step whose whole time is known to be" in section.words


def test_of_several_launches_the_words_about_steps_say_of_which_ones_they_are() -> None:
    first, then = made(50).recorded, made(20, slow=dict.fromkeys(range(1, 21), 0.7)).recorded
    both = pd.concat([first, then.assign(segment=1, line=then["line"] + 100)])
    page = contents(from_events(both.drop(columns="record")))
    said = {section.name: section.words for section in page.sections}
    assert said["steps-0"].startswith("9 in 10 of the 49 averaged take 1.60 s.")
    assert said["phases-0"].startswith("Mean of 49 steps, 2 to 50 of launch 1 of 2, and")


def test_the_chart_of_steps_is_said_to_show_what_it_shows() -> None:
    steps = made(4).steps
    (chart,) = time_section(0, steps, many=False).charts
    assert chart.label.startswith("Time by class, throughput and loss of 4 steps.")
    (chart,) = time_section(0, steps.assign(loss=None, samples_per_second=None), many=False).charts
    assert chart.label.startswith("Time by class of 4 steps.")
    (chart,) = time_section(
        0, steps.assign(seconds=None, samples_per_second=None), many=False
    ).charts
    assert chart.label.startswith("Loss of 4 steps.")


def test_what_passes_between_steps_stands_in_their_chart() -> None:
    run = between_steps(lambda step: 1.5 if is_twentieth(step) else 0.0)
    (section,) = (one for one in contents(run).sections if one.name == "steps-0")
    (columns,) = (t for t in section.charts[0].figure["data"] if t["meta"] == "unknown")
    high = [x for x, y in zip(columns["x"], columns["y"], strict=True) if y > 300]
    assert len(high) == 7
    assert "9 in 10 of the 31 windows of 5 steps between 100 ms and 400 ms" in section.words


def test_stretches_of_held_back_steps_end_with_their_launch() -> None:
    first, then = made(8).recorded, made(5).recorded
    both = pd.concat([first, then.assign(segment=1, line=then["line"] + 100)])
    steps = from_events(both.drop(columns="record")).steps.assign(bound="communication")
    (chart,) = time_section(0, steps, many=False).charts
    assert "13 communication-bound steps (1 to 8, 1 to 5)" in chart.note


def test_steps_of_which_nothing_is_known_are_counted() -> None:
    run = made(10)
    bound = pd.Series(["optimizer"] * 4 + ["unknown"] * 5 + [None])
    run.__dict__["steps"] = run.steps.assign(bound=bound)
    assert verdict(run).bound == "Of 10 steps: 4 optimizer-bound, 6 unknown."
    run.__dict__["steps"] = run.steps.assign(bound="unknown")
    assert verdict(run).bound == ""


def test_the_median_of_the_page_is_that_of_the_terminal() -> None:
    from dsprof.text.overview import overview
    from dsprof.units import format_seconds

    run = made(11)
    steps = run.steps.assign(
        seconds=[900.0] * 3 + [float(n) for n in range(4, 12)],
        seconds_from=pd.Categorical(["clock"] * 3 + ["logged"] * 8),  # slow: of another source
        whole_seconds=float("nan"),
    )
    run.__dict__["steps"] = steps
    median = overview(run).median
    assert median is not None
    assert median < 100  # the slow steps are not of its kind
    lead = time_section(0, steps, many=False).words
    assert lead == f"Median {format_seconds(median)}, all between 4.00 s and 15 min 00 s."


def test_a_median_of_few_whole_steps_says_of_how_many_and_is_that_of_the_terminal() -> None:
    from dsprof.text.overview import overview
    from dsprof.units import format_seconds

    run = made(12)
    whole = [float("nan")] * 8 + [20.0, 10.0, 40.0, 31.0]
    run.__dict__["steps"] = run.steps.assign(whole_seconds=whole, whole_from="throughput")
    median = overview(run).median
    assert median is not None
    assert median == pytest.approx(25.5)
    lead = time_section(0, run.steps, many=False).words
    told = "all of the 4 steps whose whole time is known between 10.0 s and 40.0 s."
    assert lead == f"Median {format_seconds(median)}, {told}"


def test_a_loss_that_is_told_and_no_number_is_known_as_such() -> None:
    base = {"kind": "metric", "name": "loss", "steps": 1, "rank": 0}
    run = with_rows(
        made(5),
        base | {"value": np.nan, "text": "nan", "step": 3},
        base | {"value": np.inf, "step": 4},
    )
    blank = run.steps.assign(loss=run.steps["loss"].where(run.steps["step"] != 2))
    marked = with_broken_losses(blank, run.events)
    assert list(marked["loss_broken"]) == [False, False, True, True, False]  # 2 is only not told


@pytest.mark.parametrize(
    ("job", "held"),
    [
        ({"zero_stage": 2}, "with reduction inside backward"),
        ({"zero_stage": 1, "tensor_parallel_size": 2}, "with what tensor parallelism exchanges"),
    ],
)
def test_a_step_whose_compute_holds_communication_is_drawn_and_counted_as_such(
    job: dict[str, Any], held: str
) -> None:
    run = run_of(steps(20, WELL), world_size=4, **job)
    labels = [part.label for part in contents(run).verdict.parts]
    assert f"compute, {held}" in labels
    assert "at least communication (collectives)" in labels
    assert set(run.steps["bound"]) == {"unknown"}


def test_the_parts_of_the_average_step_fill_it() -> None:
    parts = verdict(made(20)).parts
    assert sum(part.width for part in parts) == pytest.approx(100, abs=0.2)
    assert parts[0].role == "communication"


def test_a_finding_without_a_price_has_none() -> None:
    assert told(finding()).cost == ""
    assert told(finding(seconds_per_step=0.2)).cost == "200 ms per step"
    assert "Rank 3" in told(finding(ranks=(3,))).note


def test_sections_without_data_say_why_in_one_line() -> None:
    run = made(3)
    metrics = run.recorded[run.recorded["name"] != "lr"]
    silent = from_events(metrics.drop(columns="record"))
    for section in (
        comm_section(run),
        memory_section(run),
        problem_section(run),
        training_section(silent),
    ):
        assert section.why.endswith(".")
        assert "\n" not in section.why
        assert not section.charts
        assert not section.tables


def test_before_and_after_a_slowdown_are_drawn_on_one_scale() -> None:
    run = made(60, slow=dict.fromkeys(range(31, 61), 2.0))
    run.__dict__["findings"] = [finding(rule="slowdown", steps=(31, 60))]
    table = phase_table(run.phases, run.steps)
    section = phase_section(run, 0, run.steps, table, many=False)
    before, after = (chart.figure["data"][0] for chart in section.charts[1:])
    assert before["values"][0] == pytest.approx(1.6)
    assert after["values"][0] == pytest.approx(3.1)
    assert before["domain"]["x"][1] == pytest.approx(1.6 / 3.1, abs=1e-3)
    compared = section.charts[2].table
    assert compared
    assert [cell.text for cell in compared.rows[0]] == [
        "backward_allreduce",
        "0.50 s",
        "2.00 s",
        "+1.50 s",
    ]


def test_several_engines_have_a_chart_each() -> None:
    run = made(4)
    both = pd.concat([run.recorded, run.recorded.assign(engine=1)]).drop(columns="record")
    names = [section.name for section in contents(from_events(both)).sections]
    assert names[:4] == ["steps-0", "steps-1", "phases-0", "phases-1"]


def test_a_step_knows_its_lines() -> None:
    run = made(10, ranks=4)
    spans = line_spans(run.steps, run.events, ["made.log"])
    assert spans.of(2) == [(0, 9, 12)]


def test_lines_far_from_a_step_are_not_its_own() -> None:
    run = with_rows(
        made(5), {"kind": "metric", "name": "eval_loss", "value": 1, "step": 2, "line": 900}
    )
    ((_, first, last),) = line_spans(run.steps, run.events, ["made.log"]).of(1)
    assert (first, last) == (2, 2)


def test_the_configuration_is_flat_and_knows_the_advice() -> None:
    text = '{"zero_optimization": {"stage": 2,\n"overlap_comm": false},\n"train_batch_size": 64}'
    run = with_rows(made(5), {"kind": "config", "name": "ds_config", "text": text, "line": 4})
    advice = (Advice("zero_optimization.overlap_comm", "false", "true", "hides it"),)
    run.__dict__["findings"] = [finding(advice=advice)]
    first = settings(run)[0]
    assert first[:3] == ("zero_optimization.overlap_comm", "false", "true")
    assert first.place == Place("made.log", 3)
    assert ("zero_optimization.stage", "2") in [s[:2] for s in settings(run)]


def test_a_value_that_is_a_whole_object_is_cut_and_says_so() -> None:
    told = {"kind": "config", "name": "aio", "text": "a=1 " * 200}
    (aio,) = [s for s in settings(with_rows(made(5), told)) if s.key == "aio"]
    assert aio.value == "a=1 " * 50 + "…"


def test_advice_for_a_key_that_is_not_set_is_shown_as_such() -> None:
    run = made(5)
    run.__dict__["findings"] = [finding(advice=(Advice("bf16.enabled", "", "true", "half"),))]
    assert settings(run)[0].value == "not set, as far as the source shows"


def test_a_key_whose_value_a_finding_knows_is_not_said_to_be_unset() -> None:
    run = made(5)
    advice = (Advice("comms_logger.enabled", "true", "false", "it waits for each call"),)
    run.__dict__["findings"] = [finding(advice=advice)]
    assert settings(run)[0][1:3] == ("true; no line sets it", "false")


def test_the_chart_of_steps_is_left_out_where_no_step_ended() -> None:
    section = time_section(0, made(3).steps.iloc[:0], many=False)
    assert section.why


def test_a_run_too_long_to_keep_whole_says_so_and_keeps_its_outlier() -> None:
    seconds = np.full(STEPS + 5000, 0.5)
    seconds[70_001] = 9.0
    like = made(3).steps.iloc[:1]
    steps = like.reindex(np.zeros(len(seconds), dtype=int)).reset_index(drop=True)
    steps = steps.assign(step=np.arange(1, len(seconds) + 1), seconds=seconds)
    kept = thinned(steps)
    assert len(kept) <= STEPS + 2
    assert kept["seconds"].max() == 9.0
    said = time_section(0, kept, many=False, of=len(steps)).words
    assert "of 125,000 steps are kept" in said


def test_lines_are_read_back_from_compressed_sources(tmp_path: Path) -> None:
    from dsprof.page.contents import _lines

    path = tmp_path / "run.log.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\nthree"))
    assert list(chain.from_iterable(_lines(str(path)))) == [b"one", b"two", b"three"]
    assert list(_lines("-")) == []
    assert list(_lines(str(tmp_path / "gone"))) == []


@pytest.mark.parametrize("raw", ["fp16_enabled", "torch.float16", "BF16"])
def test_a_value_that_is_read_out_of_a_line_stands_under_the_word_for_it(raw: str) -> None:
    row = {"kind": "config", "name": "dtype", "raw": raw, "text": "fp16", "line": 4}
    assert ("dtype", "fp16") in [s[:2] for s in settings(with_rows(made(5), row))]


def test_an_average_says_of_how_many_steps_it_is_and_what_is_left_aside() -> None:
    assert verdict(made(3)).mean == "Mean of 3 printed steps, 1 to 3."
    assert verdict(made(1)).mean == "One printed step, 1."
    said = verdict(made(20)).mean
    assert said == "Mean of 19 printed steps, 2 to 20, without the first step, a warm-up."


def test_an_average_of_windows_does_not_call_them_steps() -> None:
    found = verdict(sample("neox_pipeline_2023"))
    assert found.mean == "Mean of 3 windows of 10 steps, printed at 20 to 40."
    assert found.bound == "All 3 windows of 10 steps are pipeline-bound."


def test_an_average_of_whole_steps_says_that_these_are_few() -> None:
    run = sample("straggler_0.19.8")
    assert verdict(run).mean.startswith(
        "Mean of 4 printed steps, 10 to 40, whose whole time is known"
    )


def test_a_step_that_nothing_breaks_down_has_no_bar_of_one_colour() -> None:
    found = verdict(undivided(made(20)))
    assert found.step.text == "1.60 s"
    assert found.parts == []


def test_timers_that_take_nearly_nothing_of_a_step_are_told_and_not_drawn() -> None:
    run = made(20)
    tiny = run.phases.assign(seconds=run.phases["seconds"] / 1000)
    table = phase_table(tiny, run.steps)
    section = phase_section(run, 0, run.steps, table, many=False)
    assert section.words == "What the source times is under 0.1 % of a step: too little to draw."
    assert not section.charts
    assert section.tables[0].rows


def test_how_sure_a_finding_is_stands_below_it_and_why_stands_there_once() -> None:
    run = made(20)
    run.__dict__["findings"] = [finding(confidence="medium")]
    assert verdict(run).sure == "Medium confidence: it follows from what the source says."
    reason = "It may be so. Medium confidence: no line tells."
    run.__dict__["findings"] = [finding(confidence="medium", summary=reason)]
    assert verdict(run).sure == ""
    assert "onfidence" not in told(run.findings[0]).note
    assert told(finding(confidence="low")).note.startswith("Low confidence")


def test_the_first_screen_says_what_of_the_layout_the_source_does_not_tell() -> None:
    told = dict(verdict(sample("neox_pipeline_2023")).facts)
    assert told["Not told"].text == "ranks, parallel layout, ZeRO stage, batch sizes, versions"
    assert "Not told" not in dict(verdict(sample("comms_verbose_0.16.9")).facts)


def test_the_framework_is_told_with_the_versions_that_write_such_lines() -> None:
    line = {"kind": "metric", "name": "loss", "value": 1.0, "pattern": "deepspeed.throughput"}
    told = dict(verdict(with_rows(made(3), line | {"step": 1, "steps": 1, "rank": 0})).facts)
    assert told["Framework"].text == "DeepSpeed 0.8.0 or later"
    assert "versions" not in told["Not told"].text


def test_a_page_of_recordings_is_named_after_their_number(tmp_path: Path) -> None:
    run = gpus(tmp_path / "runs")
    run.__dict__["told"] = run.told.assign(source=run.told["source"].astype("str") + ".kept")
    assert contents(run).title == "runs, 2 recordings"


def launch(name: str) -> str:
    """A log of a few steps, each launch from the first step on."""
    marks = (f"step={step}, skipped=0, lr=[0.0001], mom=[(0.9, 0.99)]" for step in range(1, 9))
    head = "[2024-05-01 10:00:00,100] [INFO] [logging.py:96:log_dist] [Rank 0] "
    return "".join(f"{head}{mark}\n" for mark in marks) + f"{head}DeepSpeed info: {name}\n"


@pytest.mark.parametrize(
    ("files", "title"),
    [
        (["jobs/a.log"], "a.log"),
        (["jobs/a.log", "jobs/b.log"], "jobs, 2 files, 2 launches"),
        (["jobs/mon/train.log", "jobs/tue/train.log"], "jobs, 2 files, 2 launches"),
    ],
)
def test_a_page_of_several_launches_is_named_after_their_folder_and_number(
    tmp_path: Path, files: list[str], title: str
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(launch(name))
    run = load([tmp_path / name for name in files])
    assert contents(run).title == title


def test_the_throughput_of_the_page_has_every_rate_that_the_terminal_has() -> None:
    each = ({"step": step, "steps": 1, "kind": "metric"} for step in range(1, 11))
    rows = [
        row | {"name": name, "value": value}
        for row in each
        for name, value in (("tokens_per_second", 9000.0), ("tflops", 31.5))
    ]
    throughput = dict(facts(with_rows(made(10), *rows)))["Throughput"]
    assert "9,000 tokens/s, 31.5 TFLOP/s a GPU, mean" in throughput.text


def test_the_throughput_of_engines_in_turns_is_by_the_clock_as_in_the_terminal(
    tmp_path: Path,
) -> None:
    throughput = dict(facts(in_turns(tmp_path, engines=2)))["Throughput"]
    assert throughput.text.startswith("114 samples/s")


def test_a_gain_above_the_cost_says_what_it_is_the_gain_of() -> None:
    ready = Finding(
        "data-bound", Severity.WARNING, "16 % of a step is waiting for input data", "",
        share=0.16, seconds_per_step=0.16, gain=(0.1, 0.3), what_if="every batch were ready",
    )  # fmt: skip
    assert told(ready).note.startswith("Gain if every batch were ready: 1.00 s → 700 ms to 900 ms")
    around = Finding(
        "zero3-gather-stall", Severity.WARNING, "23 % of a step is spent gathering", "",
        share=0.23, seconds_per_step=0.23, gain=(0.0, 0.3), gain_why="more than the calls take",
    )  # fmt: skip
    assert told(around).note.startswith("Gain up to 300 ms per step; more than the calls take")


def test_the_mean_step_before_a_slowdown_is_without_the_warm_up() -> None:
    """Step 1 takes 87 ms, those from step 2 to 31 17.6 ms in the mean."""
    run = sample("torchrun_tee_0.19.8")
    section = phase_section(run, 0, run.steps, phase_table(run.phases, run.steps), many=False)
    before = next(chart for chart in section.charts if chart.name == "phases-0-before")
    assert "17.6 ms" in str(before.figure)
