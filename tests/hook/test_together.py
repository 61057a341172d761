"""Ranks that are joined one after the other give a step the same number."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsprof.hook import together
from dsprof.hook.together import Together, leave_out

CALLS = 3  # collectives in each step


class Rank:
    """One that has issued so many collectives of the job when it is joined."""

    def __init__(self, at: int, mine: int, files: list[Path], patch: pytest.MonkeyPatch) -> None:
        self.issued, self._patch = at, patch
        self._told()
        self.together = Together(str(files[mine]), [str(file) for file in files])

    def _told(self) -> None:
        self._patch.setattr(together, "_issued", lambda: self.issued)

    def ends_step(self) -> int | None:
        self.issued = (self.issued // CALLS + 1) * CALLS
        self._told()
        return self.together.number(self)

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
    monkeypatch.setattr(together, "_issued", lambda: 0)
    assert [one.together.number(one), one.together.number(one)] == [1, 2]
