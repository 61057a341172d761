"""What the page says of memory."""

from __future__ import annotations

import pytest

from dsprof.page.resources import memory_section
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
