"""What is written of a collective: its number, its group, and the name of one that never ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsprof.events import Class
from dsprof.hook.calls.collectives import NUMBERS, Collectives
from dsprof.hook.calls.operations import Operation
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


def test_a_call_whose_work_is_gone_was_hidden_and_the_one_that_has_its_number_is_waited_for(
    timeline: Timeline,
) -> None:
    group = Group()
    calls, work, reduce = calls_on(timeline, group), Group(), Operation("all_reduce", 0)
    track = timeline.track(1)
    for size in (8, 16):
        calls.issued(reduce, group, ([Tensor(size)],), {}, work, 0)
    calls.after_wait(calls.before_wait((work,)))
    timeline.close_step(track, 1)
    found = read(timeline.writer.path).collectives
    assert [call.size for call in found] == [8, 16]
    assert found[0].blocked == 0
    assert found[1].blocked > 0


def test_of_thinned_calls_of_which_one_s_wait_is_unknown_all_are(timeline: Timeline) -> None:
    group = Group()
    calls, reduce = calls_on(timeline, group, blocks_host=False), Operation("all_reduce", 0)
    track, calls.every = timeline.track(1), 2
    timeline.leave(timeline.enter(track, timeline.phase("forward", Class.COMPUTE)))
    for is_cpu in (True, False, True):
        calls.issued(reduce, group, ([Tensor(8, is_cpu=is_cpu)],), {}, None, 0)
    timeline.close_step(track, 1)
    (call,) = read(timeline.writer.path).collectives
    assert (call.calls, call.blocked) == (3, -1)


def test_what_one_step_issues_the_next_one_may_wait_for(timeline: Timeline) -> None:
    """As parameters are gathered ahead."""
    group = Group()
    calls, work, track = calls_on(timeline, group), Group(), timeline.track(1)
    timeline.leave(timeline.enter(track, timeline.phase("step", Class.OPTIMIZER)))
    calls.issued(Operation("all_gather", 0), group, ([Tensor(8)],), {}, work, 0)
    timeline.close_step(track, 1)
    assert calls.is_under_way(work)
    calls.after_wait(calls.before_wait((work,)))
    timeline.close_step(track, 2)
    (call,) = read(timeline.writer.path).collectives
    assert call.blocked > 0
    assert call.step == 2  # whose time holds the wait
