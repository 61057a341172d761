"""What the page says of memory."""

from __future__ import annotations

import pytest

from dsprof.page.resources import ROWS, memory_section
from tests.page.runs import made, with_rows

UNTOLD = "The source does not say how much memory a GPU has."


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("allocated", {}, UNTOLD),
        ("allocated", {"name": "accelerator", "text": "cpu"}, ""),  # DeepSpeed prints zeros there
        ("host_process", {}, ""),
    ],
)
def test_of_the_memory_of_gpus_nothing_is_said_where_there_is_none(
    name: str, config: dict[str, str], said: str
) -> None:
    row = {"kind": "memory", "name": name, "rank": 0, "bytes": 1 << 30}
    rows = [row | {"step": step} for step in (1, 2, 3)]
    told = [{"kind": "config", **config}] if config else []
    assert memory_section(with_rows(made(4), *rows, *told)).words == said


def test_of_too_many_ranks_each_kind_of_memory_shows_those_with_the_highest_peak() -> None:
    row = {"kind": "memory", "step": 2, "steps": 1}
    rows = [
        row | {"name": name, "rank": rank, "bytes": (1 + (rank == 299)) << 30}
        for name in ("allocated", "max_allocated")
        for rank in range(300)
    ]
    section = memory_section(with_rows(made(4), *rows))
    (table,) = section.tables
    said = [(row[0].text, row[1].text) for row in table.rows]
    assert {("allocated", "299"), ("peak allocated", "299")} <= set(said)
    assert len(said) == ROWS
    assert table.more == "400 rows of lower peaks not shown."
