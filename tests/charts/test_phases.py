"""Phases of every step: sums, trees, ranks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from dsprof.charts import icicle, phase_table, rank_map, rank_phases
from dsprof.charts.icicle import _fit
from tests.page.runs import made, with_rows


def test_a_phase_is_the_mean_over_the_ranks_of_its_step() -> None:
    run = made(4, ranks=4)  # rank 3 reduces 20 % longer
    table = phase_table(run.phases, run.steps)
    assert table
    reduction = table.seconds[:, table.names.index("backward_allreduce")]
    assert reduction == pytest.approx(np.full(4, 0.5 * (3 + 0.8) / 4))


def test_a_phase_that_only_some_ranks_have_is_a_mean_over_all_of_them() -> None:
    """As in a pipeline: what stage 0 waits for is no wait of the last stage."""
    run = made(4, ranks=4)
    alone = run.phases[run.phases["rank"].eq(0) | run.phases["name"].ne("backward_allreduce")]
    table, every = phase_table(alone, run.steps), phase_table(run.phases, run.steps)
    assert table
    assert every
    mean = dict(zip(table.names, table.mean(), strict=True))
    before = dict(zip(every.names, every.mean(), strict=True))
    assert mean["backward_allreduce"] == pytest.approx(0.5 / 4)
    assert mean["forward"] == pytest.approx(before["forward"])


def test_the_slowest_rank_of_a_phase_is_known() -> None:
    run = made(4, ranks=5)
    table = phase_table(run.phases, run.steps)
    assert table
    at = table.names.index("backward_inner")
    assert list(table.slowest[:, at]) == [3, 3, 3, 3]
    assert table.longest[0, at] == pytest.approx(0.8)


def test_parents_stand_before_their_children() -> None:
    table = phase_table(made(3).phases, made(3).steps)
    assert table
    assert table.names[table.parents[table.names.index("backward_inner")]] == "backward"
    assert all(parent < child for child, parent in enumerate(table.parents))


def test_phases_that_lie_inside_each_other_are_still_drawn() -> None:
    rows = made(3).phases
    inside = {"forward": "backward", "backward": "forward"}
    parents = rows["name"].astype("str").map(inside).fillna(rows["parent"].astype("str"))
    table = phase_table(rows.assign(parent=parents), made(3).steps)
    assert table
    assert all(parent < child for child, parent in enumerate(table.parents))
    assert set(table.names) >= {"forward", "backward", "backward_inner"}


def test_self_time_is_what_the_children_do_not_explain() -> None:
    table = phase_table(made(3).phases, made(3).steps)
    assert table
    own = dict(zip(table.names, table.self_time(table.mean()), strict=True))
    assert own["backward"] == pytest.approx(0, abs=1e-9)
    assert own["forward"] == pytest.approx(0.3)


def test_phases_of_steps_that_are_not_there_are_left_out() -> None:
    run = made(10)
    table = phase_table(run.phases, run.steps.iloc[:4].reset_index(drop=True))
    assert table
    assert table.seconds.shape[0] == 4


def test_phases_of_another_launch_do_not_mix_with_those_of_this_one() -> None:
    run = made(3)
    phases = pd.concat([run.phases, run.phases.assign(segment=1, seconds=99.0)])
    table = phase_table(phases, run.steps)
    assert table
    assert table.seconds.max() < 2


def test_a_run_without_phases_has_no_table() -> None:
    assert phase_table(made(3).phases.iloc[:0], made(3).steps) is None


def test_the_icicle_is_as_wide_as_the_step_and_says_what_is_missing() -> None:
    table = phase_table(made(3).phases, made(3).steps)
    assert table
    figure = icicle(table, table.mean(), 2.0)
    trace = figure["data"][0]
    go.Figure(figure)
    values = dict(zip(trace["labels"], trace["values"], strict=True))
    assert values["one step"] == 2.0
    assert values["no timer"] == pytest.approx(2.0 - 1.6)


def test_children_that_outlast_their_parent_are_fitted_into_it() -> None:
    table = phase_table(made(3).phases, made(3).steps)
    assert table
    values = table.mean()
    values[table.names.index("backward_inner")] = 5.0
    fitted = _fit(table, values, 10.0)
    inside = [i for i, p in enumerate(table.parents) if p == table.names.index("backward")]
    assert fitted[inside].sum() == pytest.approx(values[table.names.index("backward")])


def test_phases_that_overlap_do_not_make_the_step_longer() -> None:
    table = phase_table(made(3).phases, made(3).steps)
    assert table
    trace = icicle(table, table.mean(), 1.5)["data"][0]  # its phases say 1.6 s
    parts = dict(zip(trace["labels"], trace["values"], strict=True))
    assert parts["one step"] == 1.5
    assert parts["forward"] + parts["backward"] + parts["step"] == pytest.approx(1.5)
    assert trace["text"][trace["labels"].index("forward")].startswith("300 ms")


def test_one_checkpoint_is_spread_over_all_steps() -> None:
    saved = {"kind": "phase", "name": "save-checkpoint", "raw": "save-checkpoint", "seconds": 20.0}
    run = with_rows(made(10), saved | {"step": 4, "steps": 1, "rank": 0, "timers": "megatron"})
    table = phase_table(run.phases, run.steps)
    assert table
    mean = dict(zip(table.names, table.mean(), strict=True))
    assert (mean["save-checkpoint"], mean["forward"]) == (pytest.approx(2.0), pytest.approx(0.3))
    alone = phase_table(run.phases[run.phases["name"] == "save-checkpoint"], run.steps)
    assert alone
    assert alone.mean() == pytest.approx([2.0])


def test_sampled_timers_stand_for_the_steps_between() -> None:
    run = made(10)
    table = phase_table(run.phases[run.phases["step"] % 5 == 0], run.steps)
    assert table
    assert table.mean()[table.names.index("forward")] == pytest.approx(0.3)


def test_the_map_of_ranks_shows_the_slow_one() -> None:
    table = rank_phases(made(6, ranks=8).phases)
    assert table is not None
    assert table.loc["backward_inner"].idxmax() == 3
    assert table.loc["backward_allreduce"].idxmin() == 3  # who computes longer waits less
    figure = rank_map(table)
    go.Figure(figure)
    row = figure["data"][0]["z"][list(table.index).index("backward_allreduce")]
    assert row[3] == pytest.approx(-0.1)
    assert row[0] == 0


def test_of_two_ranks_the_slower_one_is_shown_all_of_their_difference_behind() -> None:
    table = pd.DataFrame([[0.10, 0.13]], index=["forward"], columns=[0, 1])
    trace = rank_map(table)["data"][0]
    assert trace["z"][0] == pytest.approx([0.0, 0.03])
    assert "30.0 ms more than the median rank" in trace["customdata"][0][1]


def test_one_rank_alone_is_not_compared() -> None:
    assert rank_phases(made(6).phases) is None


def test_a_phase_of_a_few_steps_takes_its_part_of_every_step_in_the_map_of_ranks() -> None:
    row = {"kind": "phase", "name": "save", "raw": "save", "seconds": 2.0, "step": 3, "steps": 1}
    run = with_rows(made(10, ranks=2), *(row | {"rank": rank} for rank in (0, 1)))
    table = rank_phases(run.phases)
    assert table is not None
    assert table.to_numpy()[list(table.index).index("save")] == pytest.approx(0.2)


def test_a_phase_inside_two_others_counts_both_in_the_map_of_ranks() -> None:
    phases = made(4, ranks=2).phases
    inner = phases[phases["name"] == "forward"].assign(name="gather", parent="forward", seconds=0.1)
    both = pd.concat([phases, inner, inner.assign(parent="backward", seconds=0.3)])
    table = rank_phases(both)
    assert table is not None
    assert table.to_numpy()[list(table.index).index("gather")] == pytest.approx(0.4)


def test_words_of_a_log_are_no_markup_in_a_figure() -> None:
    hostile = '<a href="javascript:x">y</a>'
    row = {"kind": "phase", "name": hostile, "raw": hostile, "seconds": 0.4, "step": 2, "rank": 0}
    run = with_rows(made(3), row | {"steps": 1})
    table = phase_table(run.phases, run.steps)
    assert table
    labels = icicle(table, table.mean(), None)["data"][0]["labels"]
    assert not any("<" in label for label in labels)


def test_timers_that_all_read_zero_are_drawn_without_a_share() -> None:
    run = made(3)
    table = phase_table(run.phases.assign(seconds=0.0), run.steps)
    assert table
    figure = icicle(table, table.mean(), None)
    go.Figure(figure)
    assert figure["data"][0]["text"] == ["no time"]


def test_ranks_that_differ_by_nothing_show_no_pattern() -> None:
    table = rank_phases(made(6, ranks=3).phases)
    assert table is not None
    trace = rank_map(table)["data"][0]
    assert trace["zmax"] >= 0.02 * table.to_numpy().max()
    assert np.abs(np.array(trace["z"])).max() < 1e-9


def test_what_holds_other_phases_is_not_called_by_the_class_of_its_own_time() -> None:
    table = phase_table(made(3).phases, made(3).steps)
    assert table
    (trace,) = icicle(table, table.mean(), None)["data"]
    said = dict(zip(trace["labels"], trace["text"], strict=True))
    assert said["backward"].count("·") == 1
    assert said["backward_inner"].endswith("· compute")


@pytest.mark.parametrize(("ranks", "strongest"), [(8, 0.5), (64, 1.0)])
def test_colours_are_pale_only_where_words_stand_upon_them(ranks: int, strongest: float) -> None:
    table = rank_phases(made(3, ranks=ranks).phases)
    assert table is not None
    (trace,) = rank_map(table)["data"]
    assert bool(trace["texttemplate"]) == (strongest < 1)
    most = max(abs(z) for row in trace["z"] for z in row)
    assert most / trace["zmax"] == pytest.approx(strongest)
