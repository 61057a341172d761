"""The table of a step's parts: what is known adds up, numbers are whole at any width."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from dsprof.text.parts import BLENT, UNTIMED, Part, Phase, parts_of
from dsprof.text.table import PartTable
from tests.text.said import (
    rendered,
)

LONG = "optimizer_" + "_and_then_some_more" * 5


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("name", ["step", "a_name_of_20_letters", LONG])
def test_numbers_are_whole_at_any_width_and_names_too(name: str, width: int, blocks: bool) -> None:
    parts = [
        Part("compute or communication", name, 12.25, 0.98, at_least=True),
        Part("communication", "", None, None),
        Part("wait", LONG, 0.0456, 0.0005),
        Part("wait", name, 0.0123, 0.0002, inside=True),
    ]
    text = rendered(PartTable(parts, blocks=blocks), width)
    assert max(map(cell_len, text.splitlines())) <= width
    numbers = [line for line in text.splitlines() if "%" in line or "unknown" in line]
    wanted = ("12.2 s", "98 %"), ("unknown",), ("45.6 ms", "<0.1 %"), ("12.3 ms", "<0.1 %")
    for line, words in zip(numbers, wanted, strict=True):
        assert [word for word in words if word not in line] == []
    assert "".join(text.split()).count(LONG) == (3 if name == LONG else 1)
    assert name in "".join(text.split())


def test_a_bar_is_shorter_where_that_leaves_room_for_every_name() -> None:
    name = "backward-embedding-all-reduce"
    parts = [Part("compute", "forward", 0.9, 0.9), Part("communication", name, 0.1, 0.1)]
    text = rendered(PartTable(parts, blocks=True), 80)
    assert [name in line and "10 %" in line for line in text.splitlines()] == [False, True]
    assert "█" in text


ZERO3 = [
    Phase("step", "other", 8.0),
    Phase("backward_allreduce", "communication", 3.0),
    Phase("forward", "other", 4.0),
    Phase("backward", "other", 0.5),
]


def test_communication_that_is_timed_in_part_is_communication_at_least() -> None:
    parts = parts_of(20.0, {"optimizer": 1.5, "other": 18.5}, ZERO3, blent=("step", "forward"))
    assert parts == [
        Part(BLENT, "step", 12.0, 0.6),
        Part("communication", "backward_allreduce", 3.0, 0.15, at_least=True),
        Part(UNTIMED, "", 3.0, 0.15),
        Part("optimizer", "", 1.5, 0.075),
        Part("other", "backward", 0.5, 0.025),
    ]


def test_communication_that_nobody_timed_is_unknown_unless_there_is_one_rank() -> None:
    classes = {"compute": 3.0, "other": 1.0}
    assert parts_of(4.0, classes, [])[-1] == Part("communication", "", None, None)
    assert [part.name for part in parts_of(4.0, classes, [], alone=True)] == ["compute", UNTIMED]
    assert parts_of(4.0, {}, []) == []


def test_a_timer_that_a_finding_names_has_its_own_row() -> None:
    phases = [Phase("step", "optimizer", 3.0), Phase("clip", "optimizer", 1.0)]
    shown = parts_of(8.0, {"optimizer": 4.0, "communication": 4.0}, phases, named=("clip", "step"))
    assert [(part.name, part.phase, part.inside) for part in shown] == [
        ("optimizer", "step", False),
        ("optimizer", "clip", True),
        ("communication", "", False),
    ]


@pytest.mark.parametrize("classes", [{"other": 6.0}, {"compute": 2.0, "other": 6.0}])
def test_parts_add_up_to_the_step_even_if_its_timers_exceed_it(classes: dict[str, float]) -> None:
    whole = sum(classes.values())
    parts = parts_of(whole, classes, ZERO3, blent=("step", "forward"))
    assert sum(part.seconds or 0.0 for part in parts) == pytest.approx(whole)


def test_a_class_that_logged_calls_tell_names_the_timer_that_holds_most_of_it() -> None:
    """Forward and backward hold both; the calls of the step tell how much they hold of each."""
    both = "compute or communication"
    timers = [
        Phase("forward", both, 4.0),
        Phase("backward_inner", both, 3.0),
        Phase("step", "optimizer", 1.0),
    ]
    parts = parts_of(8.0, {"compute": 5.0, "communication": 2.0, "optimizer": 1.0}, timers)
    assert parts == [
        Part("compute", "forward", 5.0, 0.625),
        Part("communication", "forward", 2.0, 0.25),
        Part("optimizer", "step", 1.0, 0.125),
    ]
