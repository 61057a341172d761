"""The loss in what a model returned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dsprof.hook.models.given import Loss, _divisor_of
from dsprof.hook.models.metrics import Metrics, loss_in
from dsprof.hook.spans import Timeline
from dsprof.recording import Writer
from tests.hook.rows import folder


@dataclass(frozen=True)
class Tensor:
    size: int
    requires_grad: bool = True

    def numel(self) -> int:
        return self.size


LOSS, LOGITS, NORM = Tensor(1), Tensor(64), Tensor(1, requires_grad=False)


def test_a_model_that_returns_its_loss_behind_its_logits_returns_its_loss() -> None:
    returned: tuple[Any, ...]
    for returned in ((LOGITS, LOSS), (LOSS, LOGITS), (LOGITS, NORM, LOSS), (None, LOSS, {})):
        assert loss_in(returned) is LOSS


def test_of_several_numbers_what_comes_first_is_looked_at() -> None:
    first = Tensor(1)
    assert loss_in((first, LOSS)) is first
    assert loss_in((LOGITS, first, LOSS)) is LOGITS
    assert loss_in(()) is None


def test_a_backward_inside_of_what_a_library_trains_is_no_loss_beside_the_one_it_gives(
    tmp_path: Path,
) -> None:
    torch = pytest.importorskip("torch")
    timeline = Timeline(Writer.create(tmp_path, {"rank": 0}))
    metrics = Metrics(timeline, timeline.track(1), scaled=False)
    for cached, given in ((5.0, 2.0), (6.0, 3.0)):
        metrics.backward_of(torch.tensor(cached), None)
        metrics.give(torch.tensor(given), part=True)
    timeline.writer.close()
    assert metrics.losses == [2.0, 3.0]


def test_the_loss_of_a_backward_that_fails_is_taken_back_whoever_told_it(tmp_path: Path) -> None:
    """The loop, the model that returned it, or the engine, of which it may be one of several."""
    torch = pytest.importorskip("torch")
    one, two = (torch.tensor(value, requires_grad=True) for value in (1.0, 2.0))
    timeline = Timeline(Writer.create(tmp_path, {"rank": 0}))
    metrics = Metrics(timeline, timeline.track(1), scaled=False)
    for loss in (one, two):
        metrics.backward_of(loss, 4.0)
    metrics.take_back()
    assert metrics.losses == [1.0]
    metrics.write(1, None)
    for loss in (one, two):
        metrics.output({"loss": loss})
        metrics.backward_of(loss, None)
    metrics.take_back()
    assert metrics.losses == [1.0]
    metrics.write(2, None)
    for again in (False, True):
        metrics.give(one, part=False, again=again)
        metrics.micro_batch_ends()
    metrics.give(two, part=False)
    metrics.give(two, part=False, again=True)
    assert metrics.losses[-1] == 4.0
    metrics.take_back()
    metrics.take_back()
    timeline.writer.close()
    assert metrics.losses[-1] == 2.0


def test_what_a_model_returns_and_does_not_learn_from_is_no_loss_of_the_step(
    tmp_path: Path,
) -> None:
    """As of an evaluation with gradients. Of a sum of what it returned, all of it is."""
    torch = pytest.importorskip("torch")
    one, two, three = (torch.tensor(value, requires_grad=True) for value in (1.0, 2.0, 3.0))
    timeline = Timeline(Writer.create(tmp_path, {"rank": 0}))
    metrics = Metrics(timeline, timeline.track(1), scaled=False)
    orders: tuple[tuple[list[Any], list[Any]], ...] = (
        ([three, one], [one]),
        ([one, two], [one, two]),
        ([one, three], [one, one]),  # of one loss twice
        ([one, two], [one + two]),
        ([three], []),
    )
    for step, (returned, learned) in enumerate(orders, 1):
        for loss in returned:
            metrics.output({"loss": loss})
        for loss in learned:
            metrics.backward_of(loss, None)
        metrics.write(step, None)
    metrics.output({"loss": three})
    metrics.backward_of(three, None)
    metrics.take_back()  # it failed
    for loss in (two, one):
        metrics.output({"loss": loss})
    metrics.backward_of(one, None)
    metrics.write(6, None)
    timeline.flush()
    timeline.writer.close()
    (rank,) = folder(tmp_path)
    assert rank.metric("loss") == {1: 1.0, 2: 1.5, 3: 1.0, 4: 1.5, 5: 3.0, 6: 1.0}


@pytest.mark.parametrize(("micros", "told"), [(1, [0.5]), (2, [])])
def test_losses_of_a_step_that_were_divided_by_nobody_knows_what_are_unknown(
    tmp_path: Path, micros: int, told: list[float]
) -> None:
    """As of a PyTorch whose saved tensors do not show what they hold."""
    torch = pytest.importorskip("torch")

    class DivBackward0:
        _raw_saved_other = object()

    class Divided:
        grad_fn, is_cpu = DivBackward0(), True

    timeline = Timeline(Writer.create(tmp_path, {"rank": 0}))
    metrics = Metrics(timeline, timeline.track(1), scaled=False)
    for _ in range(micros):
        Loss(torch.tensor(0.5), None, _divisor_of(Divided())).tell(metrics)
    metrics.write(1, None)
    timeline.writer.close()
    (rank,) = folder(tmp_path)
    assert list(rank.metric("loss").values()) == told
    assert not metrics.losses


def test_parts_of_a_loss_are_parts_in_a_shorter_step_too(tmp_path: Path) -> None:
    """As in the last one of an epoch. A sum that was divided by its samples is whole."""
    torch = pytest.importorskip("torch")
    timeline = Timeline(Writer.create(tmp_path, {"rank": 0}))
    metrics = Metrics(timeline, timeline.track(1), scaled=False)
    for step, (micros, divisor) in enumerate([(1, 16.0), (4, 4.0), (2, 4.0), (3, 16.0)], 1):
        for _ in range(micros):
            metrics.backward_of(torch.tensor(2.0 / divisor), divisor)
        metrics.write(step, None)
    timeline.writer.close()
    (rank,) = folder(tmp_path)
    assert rank.metric("loss") == {1: 0.125, 2: 2.0, 3: 2.0, 4: 0.125}


@dataclass(frozen=True)
class Placement:
    """How a `DTensor` lies on ranks: all of it on each, or a part or a summand."""

    whole: bool

    def is_replicate(self) -> bool:
        return self.whole


@pytest.mark.parametrize(("whole", "told"), [(True, [5.0]), (False, [])])
def test_a_rank_s_own_share_of_a_loss_is_not_the_loss(
    tmp_path: Path, *, whole: bool, told: list[float]
) -> None:
    torch = pytest.importorskip("torch")
    timeline = Timeline(Writer.create(tmp_path, {"rank": 0}))
    metrics = Metrics(timeline, timeline.track(1), scaled=False)
    loss = torch.tensor(5.0).as_subclass(type("DTensor", (torch.Tensor,), {}))
    loss.placements = (Placement(whole=True), Placement(whole))
    metrics.add(loss)
    timeline.writer.close()
    assert metrics.losses == told


@pytest.mark.parametrize(
    ("shape", "wrapped", "told"), [((), tuple, 5.0), ((1, 1), tuple, 2.0), ((1,), dict, 5.0)]
)
def test_the_only_number_of_a_batch_of_one_sample_is_no_loss_unless_it_is_named(
    tmp_path: Path, shape: tuple[int, ...], wrapped: type, told: float
) -> None:
    torch = pytest.importorskip("torch")
    timeline = Timeline(Writer.create(tmp_path, {"rank": 0}))
    metrics = Metrics(timeline, timeline.track(1), scaled=False)
    given = torch.full(shape, 5.0, requires_grad=True)
    metrics.output({"loss": given} if wrapped is dict else given)
    metrics.backward_of(torch.tensor(2.0), None)
    timeline.writer.close()
    assert metrics.losses == [told]


def test_a_complex_number_that_a_model_returns_is_no_loss(tmp_path: Path) -> None:
    """An amplitude, say, of which the loop learns the absolute value."""
    torch = pytest.importorskip("torch")
    timeline = Timeline(Writer.create(tmp_path, {"rank": 0}))
    metrics = Metrics(timeline, timeline.track(1), scaled=False)
    metrics.output(torch.tensor(1j, requires_grad=True))
    metrics.backward_of(torch.tensor(2.0), None)
    timeline.writer.close()
    assert metrics.losses == [2.0]


def test_a_model_that_returned_a_loss_once_is_not_waited_for_in_later_steps(tmp_path: Path) -> None:
    """A sum of what it gave for one sample, as in an evaluation that keeps gradients."""
    torch = pytest.importorskip("torch")
    timeline = Timeline(Writer.create(tmp_path, {"rank": 0}))
    metrics = Metrics(timeline, timeline.track(1), scaled=False)
    metrics.output(torch.tensor(5.0, requires_grad=True))
    metrics.write(1, None)
    metrics.output(torch.ones(4, requires_grad=True))
    metrics.backward_of(torch.tensor(2.0), None)
    metrics.write(2, None)
    timeline.flush()
    timeline.writer.close()
    (rank,) = folder(tmp_path)
    assert rank.metric("loss") == {1: 5.0, 2: 2.0}
