"""What `attach` says where it cannot go on."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from dsprof.hook.attach import (
    Handle,
    _active,
    _begin_anew,
    attach,
    detach_all,
    is_attached,
    way_of,
)
from dsprof.run import load
from tests.hook.rows import folder


def test_a_launch_that_cannot_be_recorded_anew_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An engine fell back to steps that are told, and the disk is full by then."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    (tmp_path / "file").touch()
    with attach(net, optimizer=optimizer, out=tmp_path / "run"):
        recorder = _active.recorder
        recorder.guard(_begin_anew)(tmp_path / "file" / "run")
        assert _active.recorder is None
        net(torch.ones(2)).backward()
        optimizer.step()
    assert len(list((tmp_path / "run").iterdir())) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("dsprof: attaching again stopped, training goes on: DsprofError: ")


def test_an_attempt_that_fails_leaves_no_file_open_and_no_recording_without_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    monkeypatch.setenv("DSPROF_BUDGET", "much")
    attach(net, optimizer=optimizer, out=tmp_path)
    assert "could not convert string to float: 'much'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_is_asked_to_end_while_it_is_attached_ends_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`dsprof attach --stop` asks between two instructions of whatever thread trains."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def interrupted(*told: Any) -> Any:
        way, config = way_of(*told)

        def asked_meanwhile(*where: Any) -> None:
            assert detach_all()
            way(*where)

        return asked_meanwhile, config

    monkeypatch.setattr(sys.modules[attach.__module__], "way_of", interrupted)
    attach(net, optimizer=optimizer, out=tmp_path)
    assert not is_attached()
    assert capsys.readouterr().err == ""
    net(torch.ones(2)).backward()
    optimizer.step()
    (rows,) = folder(tmp_path)
    assert rows.steps == []
    monkeypatch.undo()
    with attach(net, optimizer=optimizer, out=tmp_path / "again"):
        assert is_attached()


def test_an_exception_that_leaves_the_block_undoes_all_patches_and_is_not_the_last_word_if_caught(
    tmp_path: Path,
) -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader
    before = loader.__iter__
    for out in ("first", "second"):
        with (
            suppress(ValueError),
            attach(net, optimizer=optimizer, out=tmp_path / out),
        ):
            assert loader.__iter__ is not before
            net(torch.ones(2)).backward()
            optimizer.step()
            raise ValueError("planted")
        assert not is_attached()
        assert loader.__iter__ is before
    with suppress(ValueError), attach(object()):  # stands for no recording
        raise ValueError("planted")
    attach(net, optimizer=optimizer, out=tmp_path / "third").detach()
    for out in ("first", "second", "third"):
        (rows,) = folder(tmp_path / out)
        assert rows.ended
        assert [row.step for row in rows.steps] == [1][: out != "third"]
        assert load(tmp_path / out).problems.empty


def test_threads_that_attach_at_once_are_recorded_together(tmp_path: Path) -> None:
    """Two recordings of a process would be taken for two launches."""
    torch = pytest.importorskip("torch")
    nets = [torch.nn.Linear(2, 1) for _ in range(4)]
    together = Barrier(len(nets))

    def begin(net: Any) -> Handle:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        together.wait()
        return attach(net, optimizer=optimizer, out=tmp_path)

    with ThreadPoolExecutor(len(nets)) as pool:
        handles = list(pool.map(begin, nets))
    assert len(_active.recorder.timeline.tracks) == len(nets)
    for handle in handles:
        handle.detach()
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(("inner", "outer", "first"), [(1, 1, 1), (7, 2, 7), (1, 5, 5)])
def test_a_model_that_is_attached_by_itself_and_by_what_wraps_it_is_recorded_once(
    tmp_path: Path, inner: int, outer: int, first: int
) -> None:
    """Before DDP wraps it, say, and by the search behind that."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 1)
    wrapped = torch.nn.Sequential(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step() -> None:
        wrapped(torch.ones(2)).backward()
        optimizer.step()

    within = attach(net, optimizer=optimizer, step=inner, out=tmp_path)
    around = attach(wrapped, optimizer=optimizer, step=outer)
    for _ in range(3):
        step()
    within.detach()
    assert "forward" not in vars(wrapped) | vars(net)
    step()
    around.detach()
    assert _active.recorder is None
    (rank,) = folder(tmp_path)
    assert [(row.engine, row.step) for row in rank.steps] == [(0, first + n) for n in range(3)]
    assert [row.path for row in rank.spans] == 3 * ["forward", "backward", "step"]


def test_models_of_which_each_has_an_optimizer_are_two_also_where_one_holds_the_other(
    tmp_path: Path,
) -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 1)
    for model in (net, torch.nn.Sequential(net)):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        attach(model, optimizer=optimizer, out=tmp_path)
    assert len(_active.recorder.timeline.tracks) == 2
    for handle in _active.handles[:]:
        handle.detach()


@pytest.mark.parametrize("by", ["itself", "what wraps it"])
def test_the_other_optimizer_of_a_model_that_is_attached_again_is_found_again(
    tmp_path: Path, by: str
) -> None:
    """Its hooks went with the first recording of the model."""
    torch = pytest.importorskip("torch")
    beside, *layers = (torch.nn.Linear(2, 2) for _ in range(3))
    net = torch.nn.Sequential(*layers)
    model = net if by == "itself" else torch.nn.Sequential(net)
    told, other = (torch.optim.SGD(layer.parameters(), lr=0.1) for layer in layers)
    optimizer = torch.optim.SGD(beside.parameters(), lr=0.1)

    def trains(steps: int) -> None:
        for _ in range(steps):
            model(torch.ones(2)).sum().backward()
            told.step()
            other.step()

    with attach(beside, optimizer=optimizer, out=tmp_path), attach(net, optimizer=told) as first:
        trains(2)
        if by == "itself":
            first.detach()
        with attach(model, optimizer=told, step=3):
            trains(3)
    (rank,) = folder(tmp_path)
    assert [row.step for row in rank.steps] == [1, 2, 3, 4, 5]
    assert len([row for row in rank.spans if row.path == "step"]) == 10
