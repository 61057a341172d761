"""Rows of the screens' tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dsprof.live import panes
from dsprof.live.grid import fitted
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
