"""What is written of a collective: its number, its group, and the name of one that never ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsprof.events import Class
from dsprof.hook.collectives import NUMBERS, Collectives, Operation
from dsprof.hook.spans import Timeline
from dsprof.recording import RowKind, Writer, read_rows
from tests.hook.rows import in_flight, read
from tests.hook.test_spans import Group, Tensor, calls_on


@pytest.fixture
def timeline(tmp_path: Path) -> Iterator[Timeline]:
    writer = Writer.create(tmp_path, {"rank": 0})
    yield Timeline(writer)
    writer.close()


def test_the_first_wait_for_an_operation_has_its_name_in_the_file_though_it_never_ends(
    timeline: Timeline,
) -> None:
    """As where the first collective of a job hangs: no step ends, and the job is killed."""
    group = Group()
    calls, work = calls_on(timeline, group), Group()
    timeline.enter(timeline.track(1), timeline.phase("backward", Class.COMPUTE))
    calls.issued(Operation("all_reduce", 0), group, ([Tensor(8)],), {}, work, 0)
    calls.before_wait((work,))
    assert in_flight(timeline.writer.path) == ("all_reduce", 0)


def test_the_numbers_of_a_group_s_calls_begin_anew_where_a_row_has_no_room_for_more(
    timeline: Timeline,
) -> None:
    group = Group()
    calls = calls_on(timeline, group)
    track = timeline.track(1)
    calls._groups[id(group)].sequence = NUMBERS
    for _ in range(2):
        calls.issued(Operation("all_reduce", 0), group, ([Tensor(8)],), {}, None, 0)
    calls.by_others("broadcast", group, 0, 0, 1, 8)
    assert calls.count(group) == NUMBERS + 2  # to compare with PyTorch's own count
    timeline.close_step(track, 1)
    told = read_rows(RowKind.COLLECTIVE, timeline.writer.path.parent)
    assert told["seq"].to_pylist() == [NUMBERS, 0, 1]


def a_group_of_its_own() -> Any:
    """As torchft and others make them: without `torch.distributed`, which knows nothing of it."""
    dist = pytest.importorskip("torch.distributed")
    c10d = dist.distributed_c10d
    options = c10d.ProcessGroupGloo._Options()
    options._devices = [c10d.ProcessGroupGloo.create_device(interface="lo", lazy_init=False)]
    store, torch = dist.HashStore(), pytest.importorskip("torch")
    group, gloo = dist.ProcessGroup(store, 0, 1), dist.ProcessGroup.BackendType.GLOO
    group._register_backend(torch.device("cpu"), gloo, c10d.ProcessGroupGloo(store, 0, 1, options))
    group._set_default_backend(gloo)
    return group


def test_a_group_that_a_library_made_for_itself_has_its_size_for_its_ranks(
    timeline: Timeline,
) -> None:
    group = a_group_of_its_own()
    calls = Collectives(timeline)
    calls.issued(Operation("all_reduce", 0), group, ([Tensor(8)],), {}, None, 0)
    timeline.flush()
    (call,) = read(timeline.writer.path).collectives
    assert (call.group, call.size) == ("of 1 ranks", 8)
    assert calls._groups[id(group)].blocks_host
