"""Ranks that are joined one after the other give a step the same number."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsprof.errors import DsprofError
from dsprof.hook.entering import together
from dsprof.hook.entering.together import Calls, Together, leave_out

CALLS = 3  # collectives in each step


class Optimizer:
    """Any of a rank's."""


class Rank:
    """One that has issued so many collectives of the job when it is joined."""

    def __init__(self, at: int, mine: int, files: list[Path], patch: pytest.MonkeyPatch) -> None:
        self.issued, self._patch = at, patch
        self.groups: list[Collection[int]] = [
            range(2)
        ]  # the ranks of each, whose collectives are those of a step
        self._told()
        patch.setattr(together, "_rank", lambda: mine)
        self.together = Together(str(files[mine]), [str(file) for file in files])

    def _told(self) -> None:
        calls = [Calls(ranks, self.issued) for ranks in self.groups]
        self._patch.setattr(together, "_issued", lambda: calls)

    def ends_step(self, optimizer: Any = None) -> int | None:
        self.issued = (self.issued // CALLS + 1) * CALLS
        self._told()
        return self.together.number(optimizer or self)

    def steps(self, many: int) -> Iterator[tuple[int, int | None]]:
        """By how many collectives there were, which number each of the next steps has."""
        for _ in range(many):
            number = self.ends_step()
            yield self.issued, number


@pytest.mark.parametrize(("first", "second"), [*itertools.product((7, 8, 9, 10), (9, 12, 13, 17))])
def test_a_step_has_one_number_on_all_ranks_wherever_each_is_joined(
    first: int, second: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "0", tmp_path / "1"]
    one = Rank(first, 0, files, monkeypatch)
    assert one.ends_step() is None  # the other is not there yet
    two = Rank(second, 1, files, monkeypatch)
    numbers = [dict(rank.steps(6)) for rank in (one, two)]
    shared = [step for step in numbers[0].keys() & numbers[1].keys() if numbers[0][step]]
    assert len(shared) >= 2
    assert all(numbers[0][step] == numbers[1][step] for step in shared)


def test_a_rank_that_is_not_joined_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "0", tmp_path / "1"]
    one = Rank(7, 0, files, monkeypatch)
    assert not one.together.is_complete()
    leave_out(files[1])
    assert one.ends_step() == 1
    assert one.ends_step() == 2


def test_a_rank_alone_counts_its_own_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may train without collectives."""
    one = Rank(0, 0, [tmp_path / "0"], monkeypatch)
    monkeypatch.setattr(together, "_issued", list)
    assert [one.together.number(one), one.together.number(one)] == [1, 2]


def test_only_groups_that_hold_all_joined_ranks_tell_them_one_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where DDP has a group of its own, or FSDP one for each host; the world may be silent."""
    files = [tmp_path / "0", tmp_path / "1"]
    one = Rank(7, 0, files, monkeypatch)
    Rank(8, 1, files, monkeypatch)
    one.groups = [range(4)]
    assert one.ends_step() == 1
    alone = Rank(7, 0, [tmp_path / "2", tmp_path / "3"], monkeypatch)
    Rank(8, 1, [tmp_path / "2", tmp_path / "3"], monkeypatch)
    alone.groups = [[0], [0, 2]]
    assert alone.ends_step() is None


def test_models_are_found_in_the_same_order_by_a_rank_that_learns_late_that_all_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first of two models on one rank would be compared with the second on another."""
    files = [tmp_path / "0", tmp_path / "1"]
    one = Rank(7, 0, files, monkeypatch)
    first, second = Optimizer(), Optimizer()
    assert one.ends_step(first) is None
    leave_out(files[1])
    assert one.ends_step(second) is None  # the other stepped before it
    assert [one.ends_step(first), one.ends_step(second)] == [2, 2]


def test_an_optimizer_that_is_gone_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "0", tmp_path / "1"]
    one = Rank(7, 0, files, monkeypatch)
    first, second = Optimizer(), Optimizer()
    one.ends_step(first)
    del first
    leave_out(files[1])
    assert one.ends_step(second) == 1


def test_ranks_that_nobody_joins_any_more_are_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "MOST", 3)
    one = Rank(7, 0, [tmp_path / "0", tmp_path / "1"], monkeypatch)
    assert [one.ends_step() for _ in range(3)] == [None] * 3
    with pytest.raises(DsprofError, match="not all ranks that were asked have answered"):
        one.ends_step()


def test_a_rank_that_was_left_out_does_not_count_with_those_that_began_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "0", tmp_path / "1"]
    leave_out(files[1])
    with pytest.raises(DsprofError, match="too late"):
        Rank(7, 1, files, monkeypatch)
