"""Rows of the screens' tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dsprof.live import panes
from dsprof.live.grid import fitted
from dsprof.live.picture import CommRow, CommTable, ProblemRow, Tail
from dsprof.live.text import lines
from dsprof.live.watch import Watch
from tests.live.jobs import Job


def test_columns_whose_names_begin_alike_can_be_told_apart_where_there_is_no_room(
    tmp_path: Path,
) -> None:
    Job(tmp_path, 2).run(3)
    picture = Watch([str(tmp_path)]).refresh()
    long = ("all_reduce_in_reduce", "all_reduce_in_optimizer_step", "forward")
    ranks = replace(picture.ranks, phases=long)
    columns, _ = panes.ranks(replace(picture, ranks=ranks), 80, colour=True)
    titles = [fitted(column.title, column.width).strip() for column in columns][-4:-1]
    assert titles == ["all_re…educe", "all_re…_step", "forward"]


def test_calls_are_counted_in_whole_numbers_that_have_room(tmp_path: Path) -> None:
    Job(tmp_path, 2).run(3)
    picture = Watch([str(tmp_path)]).refresh()
    row = CommRow("all_reduce", 4.0, 123_456.0, None, None, None, None)
    many = replace(picture, comm=CommTable((row,)))
    columns, (shown,) = panes.communication(many)
    (at,) = (at for at, column in enumerate(columns) if column.title == "calls")
    assert fitted(shown.cells[at].text, columns[at].width).strip() == "123,456"
    assert "all_reduce of 4 B: 123,456 calls" in "\n".join(lines(many))


def test_the_rank_of_a_problem_is_never_cut(tmp_path: Path) -> None:
    Job(tmp_path, 2).run(3)
    picture = Watch([str(tmp_path)]).refresh()
    row = ProblemRow("oom", "critical", 12_345, "", None, "", first=True, source="", line=None)
    columns, (shown,) = panes.problems(replace(picture, problems=(row,)))
    (at,) = (at for at, column in enumerate(columns) if column.title == "rank")
    assert fitted(shown.cells[at].text, columns[at].width).strip() == "12345"


@pytest.mark.parametrize("counted", [True, False])
def test_lines_have_the_numbers_of_the_file_once_these_are_known(*, counted: bool) -> None:
    tail = Tail(((7, b"one"),), frozenset(), counted=counted)
    _, rows = panes.log(tail.lines, tail, 3, "")
    assert [cell.text for cell in rows[0].cells] == ["7" if counted else "", "one"]
