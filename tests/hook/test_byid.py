"""Objects are known by which they are, whatever their class says of equality."""

from __future__ import annotations

from pathlib import Path

import pytest

import dsprof
from dsprof.hook.byid import ById
from tests.hook.rows import folder


class Equal:
    """Equal to all others of its class, and without a hash."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


def test_what_is_equal_is_told_apart_and_forgotten_when_it_goes() -> None:
    known, one, other = ById(), Equal(), Equal()
    known[one] = "one"
    assert one in known
    assert other not in known
    known[other] = "other"
    assert (known[one], known[other]) == ("one", "other")
    del one
    assert len(known._known) == 1


@pytest.mark.parametrize("named", [True, False])
def test_an_optimizer_without_a_hash_trains_and_is_recorded(
    named: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")

    kind = type("Optimizer", (torch.optim.SGD,), {"__eq__": Equal.__eq__, "__hash__": None})
    model = torch.nn.Linear(2, 1)
    optimizer = kind(model.parameters(), lr=0.1)
    first = optimizer if named else torch.optim.SGD(model.parameters(), lr=0.1)
    with dsprof.attach(), dsprof.attach(model, optimizer=first, out=tmp_path):
        for _ in range(3):
            model(torch.ones(2)).sum().backward()
            optimizer.step()
    (rows,) = folder(tmp_path)
    assert len(rows.steps) >= 2
    assert capsys.readouterr().err == ""
