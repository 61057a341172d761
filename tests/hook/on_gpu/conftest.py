"""A timeline of a device that is faked, and its collectives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsprof.hook import spans
from dsprof.hook.calls import collectives, groups
from dsprof.hook.guard import Guard
from dsprof.hook.on_gpu import device
from dsprof.hook.on_gpu.cuda import Marks
from dsprof.hook.on_gpu.device import DeviceTimeline
from dsprof.hook.on_gpu.device_collectives import DeviceCollectives
from dsprof.hook.on_gpu.streams import Streams
from dsprof.hook.patches import Patches
from dsprof.recording import Writer
from tests.hook.on_gpu.fakes import (
    FakeStream,
    SideEvent,
    Torch,
)
from tests.hook.test_spans import Clock, Group


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (spans, collectives, device):
        monkeypatch.setattr(module, "now", clock)
    return clock


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


@pytest.fixture
def timeline(tmp_path: Path, clock: Clock, stream: FakeStream) -> Iterator[DeviceTimeline]:
    assert clock.time
    writer = Writer.create(tmp_path, {"rank": 0})
    yield DeviceTimeline(writer, Marks(stream.cuda, 64))
    writer.close()


@pytest.fixture
def calls(timeline: DeviceTimeline) -> DeviceCollectives:
    return DeviceCollectives(timeline)


@pytest.fixture
def group(calls: DeviceCollectives, timeline: DeviceTimeline) -> Group:
    group = Group()
    name = timeline.writer.name("0 ranks 0-1")
    known = groups.Group(group, name, lambda _: None, blocks_host=False)
    calls._groups[id(group)] = known
    return group


@pytest.fixture
def torch_cuda(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream
) -> Iterator[Torch]:
    patches, torch = Patches(), Torch(stream)
    Streams(timeline, calls).patch(torch, patches, Guard())
    yield torch
    patches.undo()
    assert not hasattr(SideEvent.wait, "__signature__")
