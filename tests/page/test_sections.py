"""Sections say the same as the terminal, in one unit, and in plain words."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dsprof
from dsprof.charts import icicle, phase_table
from dsprof.events import PROBLEMS
from dsprof.findings import Abstention
from dsprof.page import words
from dsprof.page.contents import contents
from dsprof.page.ranks import COMPARED, rank_section
from dsprof.page.resources import training_section
from dsprof.page.steps import typical_rows
from dsprof.page.trust import doubt_section, problem_section
from dsprof.page.verdict import verdict
from dsprof.run import from_events
from tests.live.jobs import Job
from tests.loaded import sample
from tests.page.runs import events_of, made, with_rows
from tests.text.said import shown

WHY = ("no timer", "no memory", "no timer")


def sampled() -> dsprof.Run:
    """Rank 0 tells every step, the others every fourth; of those rank 3 is late.

    The steps that rank 0 tells alone are slow: its mean over all of them would be the largest.
    """
    events = events_of(80, ranks=5, slow={s: 3.0 for s in range(1, 81) if s % 4})
    alone = (events["rank"] > 0) & (events["step"] % 4 != 0)
    return from_events(events[~alone], meta={"sources": ["made.log"]})


def test_page_and_findings_name_the_same_late_rank_when_only_some_ranks_tell() -> None:
    run = sampled()
    section = rank_section(run)
    named = {rank for found in run.findings for rank in found.ranks}
    assert named <= {3}
    assert "Rank 3 comes last in 100 % of" in section.words
    table = section.charts[0].table
    assert table
    slowest = {row[0].text: row[2].text for row in table.rows}
    assert slowest["backward_inner"].endswith("rank 3")


def test_a_rank_that_is_late_where_nothing_is_timed_is_the_slow_one_of_the_map(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path, 2)
    job.run(30, slow={1: 60}, timed=False)
    job.close()
    section = rank_section(dsprof.load(tmp_path))
    assert "it loses most of that outside of what is timed" in section.words
    assert "where it is quickest itself" in section.words
    table = section.charts[0].table
    assert table
    slowest = {row[0].text: row[2].text for row in table.rows}
    assert slowest["no timer"].endswith("rank 1")
    assert section.charts[0].figure["data"][0]["y"] == [row[0].text for row in table.rows]


def test_stages_of_a_pipeline_are_not_called_late() -> None:
    wait = {"kind": "phase", "name": "pipe_recv_grad", "raw": "pipe_recv_grad", "seconds": 1.0}
    told = [wait | {"step": s, "steps": 1, "rank": r} for s in range(1, 11) for r in range(4)]
    lead = rank_section(with_rows(made(10, ranks=4), *told)).words
    assert lead.startswith("The stages of a pipeline do different work")


def test_numbers_of_a_column_have_one_unit() -> None:
    assert words.column([4.38, 0.352, 0.0085, None]) == ["4.38 s", "0.352 s", "0.0085 s", "–"]
    assert words.column([0.0147, 1e-13]) == ["14.7 ms", "under 0.0001 µs"]
    assert words.column([]) == []
    assert words.byte_column([3 << 30, 1 << 29]) == ["3.00 GiB", "0.50 GiB"]
    assert words.byte_column([16, 4, 1000]) == ["16 B", "4 B", "1,000 B"]
    assert words.rate_column([1.16e9, 3.69e3]) == ["1.16 GB/s", "3.69 KB/s"]
    assert words.rate_column([1.16e9, 0.0, 7e5]) == ["1.16 GB/s", "0 GB/s", "0.0007 GB/s"]


def test_a_column_has_no_digits_that_its_source_has_not() -> None:
    printed = [0.12207, 0.00101, 0.0001, 7e-05]  # 122.07 ms, 1.01, 0.10 and 0.07
    assert words.column(printed) == ["122 ms", "1.01 ms", "0.10 ms", "0.07 ms"]
    means = [0.12207, 0.00101, 0.0001, 7.25e-05]
    assert words.column(means) == ["122 ms", "1.01 ms", "0.100 ms", "0.0725 ms"]


def test_every_kind_of_problem_has_plain_words() -> None:
    assert words.PROBLEM.keys() == PROBLEMS.keys()
    assert not any("column" in said or "text is" in said for said in words.PROBLEM.values())


def test_problems_that_read_alike_share_a_row() -> None:
    killed = {"kind": "problem", "name": "killed-by-launcher"}
    run = with_rows(
        made(3), *[killed | {"text": f"Killing subprocess {n}", "line": n} for n in range(50, 90)]
    )
    section = problem_section(run)
    (row,) = section.tables[0].rows
    assert row[2].text == "40"
    assert row[2].among
    assert row[2].among.of == 40
    assert "rank" not in section.tables[0].head  # no line tells it
    assert "launcher" not in str(section.charts[0].figure["data"][0]["y"])
    assert (
        section.words
        == "These processes were ended by the launcher; no line of the source says why."
    )


def test_the_verdict_says_which_launch_its_means_are_of() -> None:
    first, then = made(5).recorded, made(12).recorded
    run = from_events(pd.concat([first, then.assign(segment=1)]).drop(columns="record"))
    assert verdict(run).judged == "Means are of launch 2 of 2, steps 2 to 12: it took most time."
    assert verdict(made(12)).judged == ""


def test_a_loss_scale_without_steps_is_told_with_its_line() -> None:
    scale = {"kind": "metric", "name": "loss_scale", "value": 256.0, "line": 9, "steps": 1}
    run = made(3)
    alone = run.recorded[run.recorded["kind"] == "config"].astype(object)
    run = from_events(
        pd.concat([alone, pd.DataFrame([{"source": "made.log", **scale}])]).drop(columns="record")
    )
    (row,) = training_section(run).tables[0].rows
    assert [cell.text for cell in row] == ["loss scale", "256", "1"]
    assert row[1].places[0].line == 9


def test_a_call_named_after_its_place_is_not_taken_out_of_its_namesake() -> None:
    call = {"kind": "phase", "seconds": 0.05, "steps": 1, "rank": 0}
    names = ("broadcast", "broadcast_in_step")
    told = [call | {"name": n, "raw": n, "step": s} for n in names for s in range(1, 7)]
    run = with_rows(made(6), *told)
    table = phase_table(run.phases, run.steps)
    assert table
    assert set(names) <= set(table.names)
    assert table.shared == []


def test_what_two_timers_measure_is_drawn_once() -> None:
    run = sample("neox_pipeline_2023")
    table = phase_table(run.phases, run.steps)
    assert table
    totals = table.mean(typical_rows(run.steps))
    assert [(table.names[a], table.names[b]) for a, b in table.shared] == [
        ("comms", "comms_in_step")
    ]
    once = table.drawn(totals)
    own = table.self_time(totals)
    assert own.sum() == pytest.approx(sum(once[i] for i in table.roots))
    trace = icicle(table, totals, None)["data"][0]
    drawn = dict(zip(trace["labels"], trace["values"], strict=True))
    whole = sum(totals[i] for i in table.roots)
    assert drawn["one step"] == pytest.approx(whole - totals[table.names.index("comms_in_step")])


def test_the_caption_of_problems_says_what_its_marks_and_its_axis_are() -> None:
    problem = {"kind": "problem", "name": "oom", "text": "x"}
    run = with_rows(made(3), problem | {"line": 7}, problem | {"name": "restart", "line": 9})
    (chart,) = problem_section(run).charts
    assert chart.label == (
        "Problems over the lines of the source, a row per rank. "
        "Diamond: critical, triangle: warning, star: first cause."
    )


def test_phases_that_the_table_of_ranks_leaves_out_are_counted() -> None:
    row = {"kind": "phase", "seconds": 0.01, "step": 2, "steps": 1}
    rows = [
        row | {"name": f"timer-{n}", "raw": f"timer-{n}", "rank": rank}
        for n in range(COMPARED)
        for rank in (0, 1)
    ]
    (chart,) = rank_section(with_rows(made(3, ranks=2), *rows)).charts
    assert chart.table is not None
    assert len(chart.table.rows) == COMPARED
    drawn = len(chart.figure["data"][0]["y"])
    assert chart.table.more == f"{drawn - COMPARED} shorter phases only drawn."


def test_gpus_that_run_out_of_memory_alike_share_a_row() -> None:
    full = [
        {"kind": "problem", "name": "oom", "value": gpu, "line": 50 + gpu, "text": "out of memory"}
        for gpu in range(4)
    ]
    run = with_rows(made(3), *full)
    first, others = problem_section(run).tables[0].rows
    assert (first[2].text, others[2].text) == ("1", "3")
    text = " ".join(shown(run).split())
    assert "and 2 more of the kind" in text
    assert text.count("out of memory on a GPU") == 2


def test_exits_with_different_codes_share_no_row() -> None:
    exits = [
        {"kind": "problem", "name": "exit", "value": code, "line": line}
        | {"text": f"exits with return code = {code}"}
        for line, code in ((50, -6), (51, -9), (52, -9))
    ]
    run = with_rows(made(3), *exits)
    rows = problem_section(run).tables[0].rows
    assert [row[2].text for row in rows] == ["1", "2"]
    text = shown(run)
    assert re.search(r"return code = -9 .*and 1 more of the kind", text)
    assert not re.search(r"return code = -6 .*and \d+ more", text)


def test_severities_are_called_on_the_page_as_everywhere_else() -> None:
    killed = {"kind": "problem", "name": "killed-by-launcher", "pattern": "launcher.killing"}
    killed |= {"text": "Killing subprocess"}
    run = with_rows(made(3), killed | {"line": 50}, killed | {"line": 51})
    assert set(run.problems["severity"]) == {"info"}
    section = problem_section(run)
    assert section.tables[0].rows[0][0].text == "info"
    assert section.charts[0].label.endswith(" Ring: info.")


def test_problems_of_two_launches_are_told_apart() -> None:
    killed = {"kind": "problem", "name": "killed-by-launcher"}
    told = [killed | {"text": f"Killing subprocess {n}", "line": n} for n in range(50, 54)]
    run = with_rows(made(3), *told[:2], *(row | {"segment": 1} for row in told[2:]))
    section = problem_section(run)
    assert [(row[2].text, row[3].text) for row in section.tables[0].rows] == [
        ("2", "launch 1, step 3"),
        ("2", "launch 2"),
    ]
    assert [s["x0"] for s in section.charts[0].figure["layout"]["shapes"]] == [52]


def test_of_several_launches_that_failed_the_first_cause_is_that_of_the_last() -> None:
    failed = {"kind": "problem", "name": "exception", "text": "KeyError: 'loss'", "rank": 1}
    run = with_rows(made(3), failed | {"line": 50}, failed | {"line": 90, "segment": 1})
    found = run.problems
    run.__dict__["problems"] = found.assign(root_cause=True)
    section = problem_section(run)
    assert section.words == (
        "First cause of launch 2 on rank 1: exception: KeyError: 'loss', line 90."
    )
    (mark,) = section.charts[0].figure["layout"]["annotations"]
    assert mark["x"] == 90


def test_what_a_long_message_says_is_marked_as_cut() -> None:
    text = f"KeyError: {'many words ' * 40}and the last"
    told = {"kind": "problem", "name": "exception", "text": text, "line": 50}
    run = with_rows(made(3), told)
    run.__dict__["problems"] = run.problems.assign(root_cause=True)
    section = problem_section(run)
    assert str(section.words).endswith(" many words…, line 50.")
    assert section.tables[0].rows[0][-1].text.endswith(" many…")


def test_one_accumulation_step_is_one() -> None:
    config = {"kind": "config", "name": "gradient_accumulation_steps"}
    for value, words_ in ((1, "1 accumulation step"), (4, "4 accumulation steps")):
        shown = dict(verdict(with_rows(made(3), config | {"value": value})).facts)
        assert shown["Batch"].text == words_


def test_steps_and_times_of_the_facts_lead_to_their_first_and_last_line() -> None:
    shown = dict(verdict(sample("neox_pipeline_2023")).facts)
    assert [place.line for place in shown["Steps"].places] == [1, 14]
    assert [place.line for place in shown["Time"].places] == [1, 20]


def test_the_median_of_a_lead_is_a_step_and_leads_to_its_line() -> None:
    page = contents(sample("neox_pipeline_2023"))
    (steps,) = [section for section in page.sections if section.name == "steps-0"]
    median = steps.said[1]
    assert median.text == "5.79 s"  # "iter time (s): 5.792"
    assert [place.line for place in median.places] == [8]


def test_questions_without_an_answer_are_grouped_by_what_they_lack() -> None:
    lacking = [Abstention(rule, why) for rule, why in zip("abc", WHY, strict=True)]
    (table,) = [t for t in doubt_section(made(3), lacking).tables if "Questions" in t.caption]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["no timer", "a, c"],
        ["no memory", "b"],
    ]


@pytest.mark.parametrize(("line", "side"), [(2, "left"), (7, "center"), (9, "right")])
def test_the_words_of_the_first_cause_stay_inside_the_chart(line: int, side: str) -> None:
    problem = {"kind": "problem", "name": "exception", "text": "x", "rank": 1}
    run = with_rows(made(3), *(problem | {"line": n} for n in (2, 7, 9)))
    found = run.problems
    run.__dict__["problems"] = found.assign(root_cause=found["line"] == line)
    (chart,) = problem_section(run).charts
    assert chart.figure["layout"]["annotations"][0]["xanchor"] == side


def test_the_caption_of_training_names_what_is_drawn() -> None:
    run = made(10)
    run.__dict__["steps"] = run.steps.assign(
        lr=np.linspace(1, 0, len(run.steps)), skipped=3, loss_scale=np.nan, grad_norm=np.nan
    )
    section = training_section(run)
    assert [chart.label for chart in section.charts] == ["Learning rate over optimizer steps."]


def test_values_of_records_whose_steps_are_unknown_are_not_drawn_over_optimizer_steps(
    tmp_path: Path,
) -> None:
    rates = (f"{{'loss': 1.{i}, 'learning_rate': {i}e-05}}\n" for i in range(1, 9))
    (tmp_path / "run.log").write_text("".join(rates), encoding="utf-8")
    run = dsprof.load(tmp_path / "run.log")
    assert run.counted
    (chart,) = training_section(run).charts
    assert chart.label == "Learning rate over records, as printed."
    assert chart.figure["layout"]["xaxis"]["title"]["text"] == "record, as printed"


def test_values_of_training_have_one_name_in_the_navigation_and_above_them() -> None:
    """Whichever of them a run has: a recording may have a gradient norm and no loss scale."""
    section = training_section(made(10))
    assert section.title == "Training values"
    assert section.name not in words.CONTENTS


def test_a_count_of_skipped_steps_that_never_rises_is_not_said_to_begin_with_the_first() -> None:
    run = made(10)
    run.__dict__["steps"] = run.steps.assign(skipped=18)
    assert "Skipped steps in all: 18 at every count." in training_section(run).words
    run.__dict__["steps"] = run.steps.assign(skipped=0)
    assert "Skipped steps in all: 0 throughout." in training_section(run).words


def test_records_are_not_called_steps_in_the_verdict() -> None:
    run = made(20)
    run.meta["counted_steps"] = True
    assert verdict(run).bound.startswith(("Of 20 records: ", "All 20 records are "))


def test_ranks_of_which_none_is_late_are_not_said_to_be_untold() -> None:
    lead = rank_section(made(10, ranks=2)).words
    assert lead == (
        "No rank stands out as the one that the others wait for. "
        "Compared: 2 ranks in 9 steps that most of them report."
    )
