"""The recording of this process: its file, its patches, and how it ends."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter_ns as now
from typing import Any, Final

from dsprof.events import Class
from dsprof.hook.calls import flight_recorder
from dsprof.hook.calls.collectives import Collectives
from dsprof.hook.calls.functional import Functional
from dsprof.hook.guard import Guard, say
from dsprof.hook.header import header_of
from dsprof.hook.looking.looker import seconds_between
from dsprof.hook.looking.looks import Looks
from dsprof.hook.on_gpu.gpu import Gpu, came_late
from dsprof.hook.patches import Call, Patches
from dsprof.hook.process import between
from dsprof.hook.process.anew import Anew
from dsprof.hook.process.cpu import Cpu
from dsprof.hook.process.garbage import Garbage
from dsprof.hook.process.memory import Host, Memory
from dsprof.hook.spans import DATA, Ended, Frame, Timeline, Track
from dsprof.recording import RowKind, Unit, Writer

FOLDER: Final = "dsprof-run"
BUDGET: Final = 0.003  # the share of a step's time that recording may cost
SETTLED: Final = 10  # steps left out of the budget, because the first ones fill caches
MANY: Final = 16  # collectives per step
MOST_STEPS: Final = (1 << 31) - 1  # the highest step number that fits into a row
_METRIC, _SECONDS = int(RowKind.METRIC), int(Unit.SECONDS)


class Recorder:
    """Holds the writer, the timeline of phases, the collectives, and the patches of the process."""

    def __init__(
        self, folder: Path, config: Mapping[str, Any], guard: Guard, before: str | None = None,
        *, shares_launch: bool = True,
    ) -> None:  # fmt: skip
        """`before` and `shares_launch` as `header_of` has them."""
        self.folder, self.guard = folder, guard
        self.budget = float(os.environ.get("DSPROF_BUDGET", str(BUDGET)))
        header = header_of(config, before, shares_launch=shares_launch)
        guard.who = f"dsprof: rank {header['rank']}"
        self.writer = Writer.create(folder, header)
        self.patches = Patches()
        try:
            self.gpu = Gpu.found(self.writer, folder)
        except BaseException:  # of a driver: nothing is recorded, and nobody else has the file
            self.writer.close()
            raise
        self.timeline = self.gpu.timeline if self.gpu else Timeline(self.writer)
        self.collectives = self.gpu.collectives if self.gpu else Collectives(self.timeline)
        host = None if header["local_rank"] else Host()
        self._memory = Memory(self.writer, self.gpu.allocator if self.gpu else None, host)
        self._cpu, self.garbage = Cpu(self.writer), Garbage(self.writer)
        self.looks = Looks(self.timeline, seconds_between(os.environ.get("DSPROF_LOOKS")))
        self._values, self._overhead = self.writer.values, self.writer.name("overhead")
        self._on_gpu = self.gpu is not None
        self._is_stopped = False
        self.models: dict[Track | None, Any] = {}  # the `Parts` of the models without an engine
        self.backward: Any = None  # the `Backward` that these models share
        self.begin_anew: Callable[[], None] = _nobody_attached
        self._refused: set[str] = set()  # names of metrics that were reported as unusable
        self._steps = self._workers = 0
        self._cost = self._time = self._seen = 0
        self.timeline.guard = guard
        self._anew = Anew(self.writer, self.timeline)
        self.timeline.closing.append(self._account)
        guard.on_failure = self._failed

    def start(self) -> None:
        """Install the patches that concern the whole process and not one engine."""
        self._counted = flight_recorder.counted()
        self.collectives.patch(self.patches, self.guard)
        with contextlib.suppress(AttributeError, ImportError):  # this PyTorch lacks what it needs
            Functional(self.collectives).patch(self.patches, self.guard)
        if self.gpu:
            self.gpu.start(self.patches, self.guard)
        self._patch_data_loader()
        between.patch(self.patches, self._between, self.guard)
        self.looks.start()
        self.garbage.start()
        _RECORDERS.add(self)
        atexit.register(self.close)

    def stop(self) -> None:
        """Undo all patches and write what is known. Only last words may follow, and `close`."""
        try:
            self.patches.undo()
        finally:
            if not self._is_stopped:
                self._is_stopped = True
                self.guard(self._finish)()

    def close(self) -> None:
        """Stop, and end the file. A second call does nothing."""
        atexit.unregister(self.close)
        try:
            self.stop()
        finally:
            self.guard(self.writer.close)()
            self.guard.off = True

    def metric(self, name: str, value: Any, step: Any) -> None:
        """Record a metric. If the value is not a number or the step not a valid step, leave it out
        and say so once per name.
        """
        name = str(name)  # another type would end the recording
        try:
            number, at = float(value), int(step)
        except (TypeError, ValueError, OverflowError, RuntimeError):  # a tensor with many numbers
            number, at = math.nan, MOST_STEPS + 1
        if -1 <= at <= MOST_STEPS:
            self.writer.metric(self.writer.name(name), number, at)
        elif name not in self._refused:
            self._refused.add(name)
            what = f"metric {name!r} is left out: {value!r} is no number, or {step!r} no step"
            say(f"{self.guard.who}: {what}")

    def _finish(self) -> None:
        self.looks.stop()
        self.garbage.stop()
        if self.gpu:
            self.gpu.stop()
        self.looks.write(self.writer, now())
        self.collectives.finish()
        self.timeline.finish()
        self._write_coverage()

    def _write_coverage(self) -> None:
        """Record how many collectives PyTorch's Flight Recorder counted and how many the hook saw.

        The Flight Recorder counts point-to-point calls on NCCL but not on gloo. If it has no
        entries although the hook saw collectives, it is off or does not cover the backend (before
        PyTorch 2.8 it covers only NCCL), and its count is left out.
        """
        seen = self.collectives.seen
        now, before = flight_recorder.counted(), self._counted
        if now is not None and before is not None and (now.total or not seen):
            self.writer.config("collectives_issued", now.total - before.total)
            seen += self.collectives.sent if now.point_to_point else 0
        self.writer.config("collectives_seen", seen)

    def _failed(self, text: str) -> None:
        self.looks.stop()
        self.garbage.stop()
        if self.gpu:
            self.gpu.stop()
        try:
            if self.writer.ring.failed:
                self.writer.last_words("recording-stopped", text)
                return
            self.writer.problem("recording-stopped", text)
            self.timeline.flush()
        finally:
            self.writer.close()

    def _patch_data_loader(self) -> None:
        """Record as `data` the time that training waits for a data loader between steps: for the
        next batch, and for starting the workers, as at the beginning of each epoch.
        """
        from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter

        around = self._between("data", Class.DATA, self._count_workers)
        self.patches.of_class(_BaseDataLoaderIter, "__next__", around)
        begins = self._between("data", Class.DATA, self._anew.iterator)
        self.patches.of_class(DataLoader, "__iter__", begins)

    def _count_workers(self, loader: Any, *_: Any) -> None:
        """Record how many worker processes make the batches, the most that an iterator has, and
        whether they stay for its next epoch.
        """
        workers = getattr(loader, "_num_workers", 0)
        if workers > self._workers:
            self._workers = workers
            self.writer.config("data_workers", workers)
            self.writer.config("data_workers_persist", bool(loader._persistent_workers))  # noqa: SLF001

    def _between(
        self, path: str, class_: Class, look: Call | None = None
    ) -> Callable[[Call], Call]:
        """A decorator that records calls as phase `path`, unless they are made inside another
        phase; `look` gets the arguments of those that are, and of those in a phase of data: a
        pipeline loads in an instruction of its own.
        """
        timeline = self.timeline
        phase = timeline.phase(path, class_)

        def begin(args: Any, _: Any) -> Frame | None:
            track, stack = timeline.current, timeline.stack
            if track is None or timeline.is_elsewhere():
                return None
            if look is not None and (not stack or stack[-1].phase.class_ == DATA):
                look(*args)
            return None if stack else timeline.enter(track, phase)

        return lambda raw: self.guard.around(raw, begin, timeline.leave)

    def _account(self, ended: Ended) -> None:
        """Write what recording this step cost; if that is over budget, record fewer steps in
        detail.
        """
        track, step, begin, end, own = ended
        own += self.looks.looker.cost()
        self.looks.end_step()
        self._values.append((_METRIC, _SECONDS, track, self._overhead, step, 0, end, own * 1e-9))
        self._steps += 1
        if self._steps > SETTLED:
            self._cost += own
            self._time += end - begin
            if self._steps % SETTLED == 0:
                self._judge()
        if end >= self._memory.due:
            self._memory.sample(step, end)
            if self._cpu.sample(end):
                self.garbage.write(end)
            self._on_gpu = self._on_gpu or came_late(self.writer)
        if end >= self.looks.due:
            self.looks.write(self.writer, end)

    def _judge(self) -> None:
        """Record fewer rows per step if recording is over budget and there are many collectives. A
        few collectives per step cannot be what it costs.
        """
        over = self._cost > self.budget * self._time
        many = self.collectives.seen - self._seen > MANY * SETTLED
        self._cost = self._time = 0
        self._seen = self.collectives.seen
        if over and many and self.collectives.every < 64:
            self.collectives.every *= 2
            self.writer.config("detail_every", self.collectives.every)


def _nobody_attached() -> None:
    """The default `begin_anew`, for a recorder to which nothing is attached."""


def folder(out: str | os.PathLike[str] | None) -> Path:
    return Path(out or os.environ.get("DSPROF_OUT") or FOLDER)


_RECORDERS: Final[weakref.WeakSet[Recorder]] = weakref.WeakSet()


def _forked() -> None:
    """Disable recording in a forked child, such as a data loader's worker: it inherits the patches,
    but must not write.
    """
    for recorder in list(_RECORDERS):
        recorder.guard.off = True
        recorder.looks.looker.collect_again()
        recorder.garbage.stop()
        atexit.unregister(recorder.close)


os.register_at_fork(after_in_child=_forked)
