"""The process's recording, as far as no job is needed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dsprof.recording import Recording
from dsprof.run import load
from tests.hook.rows import Rows, folder

pytest.importorskip("torch")

import torch
from torch._C import _distributed_c10d as c10d

from dsprof.hook.guard import Guard
from dsprof.hook.on_gpu import gpu
from dsprof.hook.recorder import Recorder

NEW, OLD = "_dump_fr_trace_json", "_dump_nccl_trace_json"


def recorded(out: Path, monkeypatch: pytest.MonkeyPatch, name: str, *entries: Any) -> Rows:
    """What is said of three collectives that were seen, when the Flight Recorder has these."""
    told: list[Any] = []
    monkeypatch.delattr(c10d, NEW, raising=False)
    monkeypatch.delattr(c10d, OLD, raising=False)
    monkeypatch.setattr(c10d, name, lambda **_: json.dumps({"entries": told}), raising=False)
    recorder = Recorder(out, {}, Guard())
    recorder.start()
    recorder.collectives.seen = 3
    told += entries
    recorder.close()
    return folder(out)[0]


def test_a_recording_tells_which_ways_of_nccl_its_process_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    monkeypatch.delenv("NCCL_IB_DISABLE", raising=False)
    recorded(tmp_path, monkeypatch, NEW)
    told = {name: value for name, value in load(tmp_path).config.items() if "NCCL" in name}
    assert told == {"env.NCCL_P2P_DISABLE": "1"}


@pytest.mark.parametrize("name", [NEW, OLD])
def test_collectives_are_counted_by_the_flight_recorder_as_each_pytorch_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    entries = [{"record_id": number} for number in (3, 4)]  # older ones were overwritten
    assert recorded(tmp_path, monkeypatch, name, *entries).unseen == 2


def test_the_flight_recorders_of_nccl_and_of_all_others_are_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PyTorch for CUDA has both; on a GPU the one that every PyTorch has is empty."""
    told: dict[str, list[Any]] = {NEW: [], OLD: []}
    for name, entries in told.items():
        dump = partial(_dumped, entries)
        monkeypatch.setattr(c10d, name, dump, raising=False)
    recorder = Recorder(tmp_path, {}, Guard())
    recorder.start()
    recorder.collectives.seen, recorder.collectives.sent = 3, 2
    told[OLD] += [{"record_id": number, "is_p2p": number > 3} for number in range(6)]
    told[NEW] += [{"record_id": 0}]
    recorder.close()
    config = folder(tmp_path)[0].config
    assert (config["collectives_seen"], config["collectives_issued"]) == (5, 7)


def test_a_recording_that_cannot_begin_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its process would seem to die at its end, and the file stays open until then."""

    def fails() -> None:
        raise RuntimeError("the driver does not answer")

    monkeypatch.setattr(gpu, "device", fails)
    with pytest.raises(RuntimeError, match="does not answer"):
        Recorder(tmp_path, {}, Guard())
    (recording,) = map(Recording, tmp_path.glob("*.dsprof"))
    recording.follow()
    assert recording.ended
    recording.close()


def _dumped(entries: list[Any], **_: Any) -> str:
    return json.dumps({"entries": entries})


@pytest.mark.parametrize("name", [NEW, "_dump_nccl_trace"])
def test_a_flight_recorder_that_is_off_or_missing_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    config = recorded(tmp_path, monkeypatch, name).config
    assert config["collectives_seen"] == 3
    assert "collectives_issued" not in config


def test_a_metric_whose_name_is_no_string_is_called_as_it_is_written(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, {}, Guard())
    recorder.start()
    name: Any = 7
    recorder.guard(recorder.metric)(name, 0.5, 1)
    recorder.guard(recorder.metric)("loss", 1.5, 1)
    recorder.close()
    (rank,) = folder(tmp_path)
    assert (rank.metric("7"), rank.metric("loss")) == ({1: 0.5}, {1: 1.5})


def test_a_metric_that_is_no_number_at_a_step_is_left_out_and_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder(tmp_path, {}, Guard())
    recorder.start()
    for step in (1, 2):
        recorder.metric("score", "much", step)
        recorder.metric("reward", 1.0, 2**31)
        recorder.metric("norm", torch.zeros(2), step)
        recorder.metric("loss", step / 2, step)
    recorder.close()
    said = capsys.readouterr().err.splitlines()
    assert [line.split("'")[1] for line in said] == ["score", "reward", "norm"]
    assert all(line.startswith("dsprof: rank 0: metric") for line in said)
    (rank,) = folder(tmp_path)
    assert rank.metric("loss") == {1: 0.5, 2: 1.0}
    assert not any(rank.metric(name) for name in ("score", "reward", "norm"))
