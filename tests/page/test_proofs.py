"""A number leads to the lines that prove it, however many they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dsprof
from dsprof.charts import phase_table
from dsprof.page.clock import REACH, span
from dsprof.page.configuration import Setting, key_lines, settings, settled
from dsprof.page.contents import contents
from dsprof.page.model import Place
from dsprof.page.proofs import SHOWN, among
from dsprof.page.steps import Typical
from dsprof.page.tracks import line_spans
from tests.loaded import sample
from tests.page.runs import made, with_rows

SAMPLES = Path(__file__).parents[2] / "sample_logs"


def rows(seconds: list[float]) -> pd.DataFrame:
    lines = range(10, 10 + len(seconds))
    return pd.DataFrame({"source": "a.log", "line": lines, "seconds": seconds})


def test_a_mean_of_few_lines_leads_to_all_of_them() -> None:
    found = among(rows([0.2, 0.5, 0.1]))
    assert found
    assert found.of == 3
    assert [(word, place.line) for word, place in found.lines] == [
        ("first", 10),
        ("longest", 11),
        ("last", 12),
    ]


def test_a_mean_of_many_lines_leads_to_its_ends_and_its_longest() -> None:
    seconds = np.ones(5000)
    seconds[2500] = 9
    found = among(rows(list(seconds)))
    assert found
    assert found.of == 5000
    assert len(found.lines) <= SHOWN
    assert dict(found.lines)["longest"].line == 2510
    assert dict(found.lines)["last"].line == 5009


def test_the_longest_line_may_be_the_last() -> None:
    found = among(rows([1.0, 2.0]))
    assert found
    assert found.lines[-1][0] == "last, longest"


def test_lines_that_are_not_known_prove_nothing() -> None:
    assert among(rows([1.0]).assign(line=pd.Series([pd.NA]))) is None
    assert among(rows([float("nan")])) is None


def test_the_mean_of_a_phase_counts_the_lines_of_all_ranks() -> None:
    run = made(6, ranks=4)
    table = phase_table(run.phases, run.steps)
    assert table
    found = Typical(table, np.arange(1, 6)).named("forward")
    assert found
    assert found.of == 20
    assert len(found.lines) == 5  # one a step


def test_keys_of_a_json_text_know_their_lines() -> None:
    text = '{\n"a": {"b": "x:y {",\n "c": [1, {"d": 2}]},\n"e":\n5}'
    found = key_lines(text)
    assert (found["a"], found["a.b"], found["a.c"], found["e"]) == (1, 1, 2, 3)


@pytest.mark.parametrize("name", ["comms_verbose_0.16.9", "zero3_0.19.8", "slow_data_0.19.8"])
def test_every_key_of_the_job_stands_on_the_line_it_leads_to(name: str) -> None:
    path = SAMPLES / f"{name}.log"
    lines = path.read_text().split("\n")
    own = [s for s in settings(dsprof.load(path)) if s.until]
    assert len(own) > 5
    for setting in own:
        assert setting.place
        assert f'"{setting.key.rsplit(".", 1)[-1]}"' in lines[setting.place.line - 1]


def test_a_key_whose_block_is_cut_through_is_looked_for_above() -> None:
    setting = Setting("a.b", "1", "", Place("x.log", 7), "the job's JSON", 9)
    lines = {"x.log": {5: '"b": 1', 6: "another rank", 7: "another rank"}}
    (found,) = settled([setting], lines)
    assert found.place == Place("x.log", 5)
    (lost,) = settled([setting], {"x.log": {7: "another rank"}})
    assert lost.place == Place("x.log", 9)


def test_a_key_is_listed_once_and_under_the_words_of_its_source() -> None:
    keys = [s.key for s in settings(sample("comms_verbose_0.16.9"))]
    assert len(keys) == len(set(keys))
    assert "train_micro_batch_size_per_gpu" in keys
    assert "pipeline_parallel_size" not in keys  # it only follows from other lines


def test_a_run_lasts_as_long_as_any_stamped_line_says(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "[2026-11-21 10:00:00,000] [INFO] [a.py:1:f] words\n"
        "no stamp\n"
        "[2026-11-21 11:30:00,500] [INFO] [a.py:2:g] the end\n"
    )
    at = pd.to_datetime(["2026-11-21 10:20:00"])
    events = pd.DataFrame({"at": at, "source": [str(log)], "line": [2]})
    told = span([str(log), str(tmp_path / "gone.log"), "-"], events)
    assert told
    first, last = told
    assert (last.at - first.at).total_seconds() == 5400.5
    assert (first.place, last.place) == (Place(str(log), 1), Place(str(log), 3))
    assert span([], events.iloc[:0]) is None


def test_the_last_time_of_a_long_run_leads_to_its_line(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    between = "words without a time\n" * (REACH // 10)
    log.write_text(f"[2026-11-21 10:00:00,000] a\n{between}[2026-11-21 11:00:00,000] b\nend\n")
    told = span([str(log)], made(1).events.iloc[:0])
    assert told
    assert told[1].place == Place(str(log), between.count("\n") + 2)


def test_a_step_knows_its_lines_in_other_sources() -> None:
    run = with_rows(
        made(5),
        {"kind": "metric", "name": "loss", "value": 1.0, "step": 3, "source": "b.csv", "line": 30},
    )
    spans = line_spans(run.steps, run.events, ["made.log", "b.csv"])
    assert spans.of(2) == [(0, 3, 3), (1, 30, 30)]
    assert spans.of(1) == [(0, 2, 2)]


def test_the_median_of_an_even_number_of_steps_leads_to_the_two_in_the_middle() -> None:
    page = contents(sample("killed_rank_torchrun_0.19.8"))
    said = next(section for section in page.sections if section.name == "steps-0").said
    assert said[0].text == "Median "
    assert [len(cell.places) for cell in said if cell.text.endswith(" ms")] == [2, 1, 1]


def test_self_time_leads_to_the_lines_of_a_phase_and_of_its_parts() -> None:
    (section,) = [
        s for s in contents(sample("comms_verbose_0.16.9")).sections if s.name == "phases-0"
    ]
    table = section.charts[0].table
    assert table
    (row,) = [row for row in table.rows if row[0].text == "backward"]
    whole, own = row[2].among, row[4].among
    assert whole
    assert own
    assert (whole.of, own.of) == (3, 9)  # steps; with two parts inside
    assert set(whole.lines) != set(own.lines)
