"""A fault at every place where training enters the hook: training ends as it would have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

KINDS = ("zero-1", "pipeline", "ddp")  # together they enter it at every place
JOB = ("planted", *KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_weights_are_the_same_to_the_last_bit_wherever_the_hook_fails(
    results: list[dict[str, Any]], kind: str
) -> None:
    for result in results:
        assert len(result[kind]) > 8
        assert [place for place, told in result[kind].items() if not told["same"]] == []
        assert [place for place, told in result[kind].items() if not told["failed"]] == []


@pytest.mark.parametrize("kind", KINDS)
def test_detach_restores_every_object_that_was_there_wherever_the_hook_fails(
    results: list[dict[str, Any]], kind: str
) -> None:
    for result in results:
        assert {place: told["left"] for place, told in result[kind].items() if told["left"]} == {}


@pytest.mark.parametrize("kind", KINDS)
def test_each_failure_is_said_in_one_line(
    results: list[dict[str, Any]], out: Path, kind: str
) -> None:
    for rank, result in enumerate(results):
        text = (out / f"{kind}-{rank}").read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if "planted at" in line]
        places = [place for place in result[kind] if place != "nothing"]
        assert [line.rpartition("planted at ")[2] for line in lines] == places
        assert all("training goes on: ZeroDivisionError" in line for line in lines)
        assert "Traceback" not in text
