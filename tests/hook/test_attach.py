"""What `attach` says where it cannot go on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from dsprof.hook.attach import Handle, _active, _begin_anew, attach


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
