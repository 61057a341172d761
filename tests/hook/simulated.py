"""A GPU for jobs on CPU ranks: streams whose work takes planted time, collectives like NCCL's.

Tensors are computed at once, on the host. What a device would take for them a job plants
(`DEVICE.works`). The host notes what it puts on each stream, and goes on; `advance` works out when
the device does it: a kernel once the host has launched it and what lies before it on its stream is
done, a collective once the streams of all its ranks have come to it. So what a step and its exposed
communication take is known, from other numbers than those that the hook sees.

Gathers and reductions exchange no data: each rank goes on with its own.
"""

from __future__ import annotations

import _thread
import itertools
import mmap
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter as now
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work, _create_work_from_future

from dsprof.hook.calls import collectives, groups
from dsprof.hook.calls.operations import OPERATIONS, POINT_TO_POINT, size_of
from dsprof.hook.models import metrics, reducer
from dsprof.hook.on_gpu import gpu
from dsprof.hook.on_gpu.cuda import Cuda, Device

CALLS: Final = 1 << 13  # of one group of ranks
TICK: Final = 2e-3  # seconds
_WAIT: Final = Work.wait
_CARRIED_OUT: Final = ("broadcast", *POINT_TO_POINT)  # by which DeepSpeed's ranks agree

Does = Callable[["Stream", float], bool]  # whether it is done; else something else must come first


class Event:
    """As much of `torch.cuda.Event` as frameworks use."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.at: float | None = None  # when the device comes to it, once that is known

    def record(self, stream: Stream | None = None) -> None:
        self.at = None
        (stream or DEVICE.current).put(self._passed)

    def _passed(self, stream: Stream, launched: float) -> bool:
        self.at = stream.until = max(stream.until, launched)
        return True

    def wait(self, stream: Stream | None = None) -> None:
        (stream or DEVICE.current).put(self._waited)

    def _waited(self, stream: Stream, launched: float) -> bool:
        if self.at is None:
            return False
        stream.stalls(max(stream.until, launched), self.at)
        return True

    def query(self) -> bool:
        DEVICE.advance()
        return self.at is not None and now() >= self.at

    def synchronize(self) -> None:
        with DEVICE.idles():
            _until(self.query)

    def elapsed_time(self, later: Event) -> float:
        assert self.at is not None
        assert later.at is not None
        return (later.at - self.at) * 1e3


class Stream:
    """The same of `torch.cuda.Stream`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_stream = next(DEVICE.handles)
        self.until = 0.0  # when all is done that `advance` has come to
        self.exposed: list[tuple[float, float]] = []  # when it went on, after how long a wait
        self._queue: deque[tuple[Does, float]] = deque()
        DEVICE.streams.append(self)

    def put(self, does: Does) -> None:
        self._queue.append((does, now()))

    def works(self, seconds: float) -> None:
        def kernel(stream: Stream, launched: float) -> bool:
            stream.until = max(stream.until, launched) + seconds
            return True

        self.put(kernel)

    def stalls(self, came: float, until: float) -> None:
        self.until = max(came, until)
        self.exposed.append((self.until, self.until - came))

    def advance(self) -> bool:
        before = len(self._queue)
        while self._queue and self._queue[0][0](self, self._queue[0][1]):
            self._queue.popleft()
        return len(self._queue) < before

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        DEVICE.advance()
        return not self._queue and now() >= self.until

    def synchronize(self) -> None:
        with DEVICE.idles():
            _until(self.query)


#: What is called where the hook must see nothing: it wraps the methods themselves.
_RECORD, _PUT_WAIT, _QUERY = Event.record, Event.wait, Stream.query


def _until(is_done: Callable[[], bool]) -> None:
    while not is_done():
        time.sleep(1e-4)


class _Device:
    """The GPU of this rank."""

    def __init__(self) -> None:
        self.handles, self.streams = itertools.count(), list[Stream]()
        self.under_way: dict[int, tuple[Work, Event]] = {}
        self._lock = threading.Lock()
        self.seconds_of: Callable[[int], float] | None = None  # of a collective of so many bytes

    def start(self) -> None:
        self.compute = self.current = Stream()
        self.nccl = Stream()

    def meets_at(self, board: Path) -> None:
        """Ranks tell each other in that file when they come to a collective."""
        rank, world = dist.get_rank(), dist.get_world_size()
        if rank == 0:
            board.write_bytes(bytes(8 * world * CALLS * (2 << world)))
        dist.barrier()
        with board.open("r+b") as file:
            self._board = mmap.mmap(file.fileno(), 0)
        self._rank, self._world, self._calls = rank, world, Counter[int]()
        threading.Thread(target=self._goes_on, daemon=True).start()

    def advance(self) -> None:
        """Until nothing more can be done of what has been put on the streams."""
        with self._lock:
            while sum(stream.advance() for stream in self.streams):
                pass

    def _goes_on(self) -> None:
        """Also while the host waits for something else: other ranks' devices meet this one."""
        while True:
            time.sleep(TICK)
            self.advance()

    def works(self, seconds: float) -> None:
        self.current.works(seconds)

    def synchronize(self, *_: Any) -> None:
        with self.idles():
            for stream in self.streams:
                _until(lambda stream=stream: _QUERY(stream))  # type: ignore[misc]

    def settle(self) -> None:
        """Before the host reads a number."""
        _until(lambda: _QUERY(self.current))

    @contextmanager
    def idles(self) -> Iterator[None]:
        """The host waits; so does the compute stream, if it is done before communication is."""
        begin = now()
        yield
        over = max(stream.until for stream in self.streams if stream is not self.compute)
        came = max(self.compute.until, begin)
        if over > came:
            self.compute.stalls(came, now())

    @contextmanager
    def on(self, stream: Stream | None) -> Iterator[None]:
        before, self.current = self.current, stream or self.current
        yield
        self.current = before

    def collective(
        self,
        size: int,
        ranks: Collection[int] = (),
        *,
        moves: bool = False,
        aside: bool = True,
    ) -> Event:
        """Put a collective of some ranks, or else of all, or what one `moves` to another, on NCCL's
        stream, or on the current one; what it gives is marked when it is over.
        """
        ranks = ranks or range(self._world)
        group = 2 * sum(1 << rank for rank in ranks) - moves  # those of the same ranks take turns
        at = 8 * self._world * (group * CALLS + self._calls[group])
        self._calls[group] += 1
        assert self.seconds_of is not None
        seconds, over, came = self.seconds_of(size), Event(), list[float]()

        def meet(stream: Stream, launched: float) -> bool:
            if not came:
                came.append(max(stream.until, launched))
                struct.pack_into("d", self._board, at + 8 * self._rank, came[0])
            told = struct.unpack_from(f"{self._world}d", self._board, at)
            theirs = [told[rank] for rank in ranks]
            if not all(theirs):
                return False
            stream.stalls(came[0], max(theirs) + seconds)
            over.at = stream.until
            return True

        if aside:
            ready = Event()
            _RECORD(ready, self.current)
            _PUT_WAIT(ready, self.nccl)
        (self.nccl if aside else self.current).put(meet)
        return over


DEVICE: Final = _Device()


def install(board: Path) -> None:
    """Put the GPU in the place of this process's, for frameworks and for the hook. Ranks must have
    met.
    """
    DEVICE.start()
    DEVICE.meets_at(board)
    for owner in (torch.cuda, torch.cpu):  # FSDP2 asks the latter
        vars(owner).update(
            Event=Event, Stream=Stream, stream=DEVICE.on, synchronize=DEVICE.synchronize,
            current_stream=lambda *_: DEVICE.current,
        )  # fmt: skip
    item = torch.Tensor.item

    def read(tensor: torch.Tensor) -> Any:
        DEVICE.settle()
        return item(tensor)

    torch.Tensor.item = read
    engine = torch.autograd._engine_run_backward
    vars(torch.autograd)["_engine_run_backward"] = partial(_aside, engine)
    torch.Tensor.record_stream = lambda *_: None
    for method, (name, place) in OPERATIONS.items():
        if method in vars(ProcessGroup):
            raw = getattr(ProcessGroup, method)
            setattr(ProcessGroup, method, _simulated(raw, name, place))
    Work.wait = _wait
    _show_to_the_hook()


def _aside(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Backward of a GPU runs on a thread of autograd's own, which Python has not started."""
    gave, over = list[Any](), threading.Lock()

    def run() -> None:
        try:
            gave.append(function(*args, **kwargs))
        finally:
            over.release()

    over.acquire()
    _thread.start_new_thread(run, ())
    with over:
        return gave[0]


def _show_to_the_hook() -> None:
    cuda = Cuda(
        Event, _RECORD, lambda: False, lambda: DEVICE.current.cuda_stream,
        lambda: DEVICE.current,
    )  # fmt: skip
    vars(gpu)["device"] = lambda *_: Device(0, "GPU-simulated", 80 << 30, "simulated", cuda)
    told_of, prepares = groups.told_of, reducer.Reducer.__init__

    def on_gpu(self: Any, *args: Any) -> None:
        prepares(self, *args)
        self.on_cpu = False

    reducer.Reducer.__init__ = on_gpu  # type: ignore[assignment, method-assign]
    vars(collectives)["on_gpu"] = lambda tensors: tensors is not None
    vars(collectives)["told_of"] = lambda group: (told_of(group)[0], "nccl")
    vars(gpu)["_is_built_for_cpus"] = lambda: False
    number = metrics.number  # which asks no tensor of a device
    vars(metrics)["number"] = lambda value: None if torch.is_tensor(value) else number(value)
    metrics.Metrics.add = lambda *_: None  # type: ignore[method-assign]


def _simulated(raw: Any, name: str, place: int | None) -> Callable[..., Any]:
    def call(group: Any, *args: Any, **kwargs: Any) -> Any:
        if DEVICE.seconds_of is None:
            return raw(group, *args, **kwargs)
        if name in _CARRIED_OUT:
            _WAIT(raw(group, *args, **kwargs))
        _keep_own(raw.__name__, args)
        size = size_of(args[place]) if place is not None else 0
        ranks, moves = dist.get_process_group_ranks(group), name in POINT_TO_POINT
        if moves:
            ranks = [dist.get_rank(), ranks[args[1]]]
        options = [one for one in (*args, *kwargs.values()) if hasattr(one, "asyncOp")]
        if options and not options[-1].asyncOp:
            DEVICE.collective(size, ranks, moves=moves, aside=False)
            return None
        promise: Any = torch.futures.Future()
        promise.set_result([torch.zeros(1)])
        work = _create_work_from_future(promise)
        DEVICE.under_way[id(work)] = work, DEVICE.collective(size, ranks, moves=moves)
        return work

    return call


def _wait(work: Work, *args: Any, **kwargs: Any) -> Any:
    """The current stream waits, the host does not."""
    known = DEVICE.under_way.pop(id(work), None)
    if known is None:
        return _WAIT(work, *args, **kwargs)
    _PUT_WAIT(known[1])
    return True


def _keep_own(method: str, args: Any) -> None:
    """What a gather or scatter gives of a rank's own data."""
    with torch.no_grad():
        if "all" in method and "gather" in method and isinstance(args[0], torch.Tensor):
            args[0].zero_()
            args[0].view(-1)[: args[1].numel()].copy_(args[1].view(-1))
        elif "reduce_scatter" in method and isinstance(args[0], torch.Tensor):
            args[0].view(-1).copy_(args[1].view(-1)[: args[0].numel()])
        elif method == "allgather":
            for out, own in zip(args[0], args[1], strict=True):
                for each in out:
                    each.copy_(own)
