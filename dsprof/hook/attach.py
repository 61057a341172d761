"""`attach` and the handle it returns."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dsprof.errors import DsprofError
from dsprof.hook import notices
from dsprof.hook.entering import beginning
from dsprof.hook.guard import Guard, say
from dsprof.hook.last_words import tell
from dsprof.hook.models.stepping import is_calling_hooks
from dsprof.hook.patches import Patches
from dsprof.recording.layout import stem_of

if TYPE_CHECKING:
    from typing import Self  # since 3.11

    from dsprof.hook.entering.beginning import Beginning

_FIRST: Final = 1 << 20  # exit priority: before multiprocessing ends this process's workers


def _nobody() -> None:
    """Stands for the weak reference of a handle without a target."""


class Handle:
    """A recording in progress; `detach` or leaving the `with` block ends it."""

    def __init__(self) -> None:
        self.patches = Patches()
        self.target: Callable[[], Any] = _nobody  # weak reference, keeps no engine alive
        self.optimizer: Callable[[], Any] = _nobody  # weak reference
        self.step = 1  # without a target: number of the step at whose end models are found
        self.together: Any = None  # without a target: the `Together` that knows this number instead
        self.out: str | os.PathLike[str] | None = None  # without a target: the run's folder
        self._entered = 0

    @property
    def folder(self) -> str | None:
        """The run's folder; None if nothing is being recorded."""
        return recorded_in()

    def may_begin(self, one: Any) -> bool:
        """Whether an engine, or what an optimizer trains, may be recorded from now on: all ranks
        are joined, and it is known which step of an optimizer has ended.
        """
        if self.together is None:
            return True
        if hasattr(one, "global_steps"):
            return bool(self.together.is_complete())
        step = self.together.number(one)
        self.step = step or self.step
        return step is not None

    def metric(self, name: str, value: float, step: int) -> None:
        """Record a metric of a step that training knows and the hook cannot see.

        Raises nothing: a value that is not a number, or has no step, is left out, and one line on
        standard error says so.

        Args:
            name: a name of `dsprof.events`, such as "loss".
            value: in the unit that `dsprof.events` gives for it.
            step: number of the optimizer step, from 1.
        """
        recorder = _active.recorder
        if recorder:
            recorder.guard(recorder.metric)(name, value, step)

    def detach(self) -> None:
        """Undo all patches of this handle. Detaching the last handle closes the recording."""
        Guard("detaching")(self._detach)()

    def _detach(self, raised: bool = False) -> None:
        try:
            self.patches.undo()
        finally:
            _active.release(self, raised)

    def __enter__(self) -> Self:
        self._entered += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Detach at the end of the outermost `with` block of this handle.

        Whether an exception that leaves the block ends the process, too, shows when that ends: the
        recording is closed then, with its last words, or as the next one begins.
        """
        self._entered -= 1
        if not self._entered:
            raised = isinstance(error, Exception) and not hasattr(sys, "ps1")
            Guard("detaching")(self._detach)(raised)


class _Before(NamedTuple):
    """A recording of this process and one target that has ended."""

    target: Callable[[], Any]  # weak reference
    step: int  # the first step after its last
    folder: Path
    name: str  # stem of its file names

    def goes_on(self, target: Any, step: int, folder: Path) -> bool:
        """Whether a recording from `step` of `target` on can continue this one: no step would be
        recorded twice.
        """
        same = self.target() is target and self.folder.absolute() == folder.absolute()
        return same and step >= self.step


class _Active:
    """The state of this process: its recorder, which exists while there are handles, and the
    search for targets.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset, also in a forked process: what that trains is recorded in a file of its own."""
        self.recorder: Any = None
        self.handles: list[Handle] = []
        self.search: Handle | None = None
        self.last: Callable[[], Any] = _nobody  # what the handle was of that was released last
        self.before: _Before | None = None
        self.has_recorded = False
        self.beginning: Beginning | None = None  # while nothing was found
        self.lock = threading.RLock()  # two threads may attach, each to what it trains
        self.under_way = 0  # calls that attach
        self.is_to_end = False  # once none of them is

    @contextmanager
    def attaching(self) -> Iterator[None]:
        """What is asked to end meanwhile ends afterwards, whole: `dsprof attach --stop` may ask
        between any two instructions of the thread that attaches.
        """
        with self.lock:
            before, self.under_way = self.under_way, self.under_way + 1
            try:
                yield
            finally:
                self.under_way = before
        if self.is_to_end and not self.under_way:
            self.is_to_end = False
            detach_all()

    def known(self, target: Any) -> Handle | None:
        if target is None:
            return self.search
        return next((handle for handle in self.handles if handle.target() is target), None)

    def targets(self) -> list[Any]:
        """What is recorded, and still there."""
        return [one for handle in self.handles if (one := handle.target()) is not None]

    def begins_no_more(self) -> None:
        """Training was found, or nothing is searched for any more."""
        before, self.beginning = self.beginning, None
        if before:
            Guard(beginning.WHAT)(before.stop)()

    def release(self, handle: Handle, raised: bool) -> None:
        """Without handles nothing more is recorded, but for the last words if it was `raised` what
        may end the process.
        """
        if handle is self.search:
            self.search = None
        if handle in self.handles:
            self.handles.remove(handle)
            self.last = handle.target
        if not raised:
            self.close()
        elif self.recorder and not self.handles:
            self.recorder.stop()

    def close(self) -> None:
        """End the recording, if no handle needs it."""
        if self.handles or not self.recorder:
            return
        recorder, self.recorder = self.recorder, None
        recorder.close()
        tracks, writer = recorder.timeline.tracks, recorder.writer
        self.before = None
        if len(tracks) == 1:
            name = stem_of(writer.path.name) or ""
            self.before = _Before(self.last, tracks[0].step, recorder.folder, name)


_active = _Active()
os.register_at_fork(after_in_child=_active.forget)


def attach(
    target: Any = None,
    *,
    optimizer: Any = None,
    step: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Handle:
    """Record the training of `target` from now on, one file per rank.

    Args:
        target: a DeepSpeed engine (ZeRO or pipeline), or a model: plain, DDP or FSDP.
            Without one, engines are found as DeepSpeed creates them, those that exist already at
            the end of their next step, and models under DDP or FSDP (1 and 2) when their optimizer
            next steps. If none is found although optimizers stepped, rank 0 says so at the end.
        optimizer: for a model that is not a DeepSpeed engine: its `step` ends a step. If there
            are several, one is enough: the others are found when they step.
        step: number of the model's next step, if training resumes; engines know theirs.
            Without a target, the number of the step at whose end models are found.
        out: the run's folder, the same for all ranks; default that of a call without a target,
            else DSPROF_OUT, else "dsprof-run". A process has one at a time; if it is asked for
            another one meanwhile, it says so.

    Nothing is raised: a failure is reported in one line on standard error, and the handle
    then stands for no recording. A second call for the same target returns the same handle.
    """
    guard = Guard("attaching")
    if _active.known(target) is None:
        guard(_must_not_be_a_hook)()
    return Handle() if guard.off else _handle(target, optimizer, step, out)


def _must_not_be_a_hook() -> None:
    """Raises:
    DsprofError: a hook of an optimizer asks for a recording.
    """
    if is_calling_hooks():
        what = "cannot begin in a hook of an optimizer, while PyTorch calls its hooks"
        raise DsprofError(what, "attach", "attach before or after optimizer.step()")


def _handle(target: Any, optimizer: Any, step: int, out: str | os.PathLike[str] | None) -> Handle:
    """As `attach`, also for the search, whose own hook runs once all hooks of a kind have run that
    may come and go then.
    """
    guard = Guard("attaching")
    with _active.attaching():
        guard(_active.close)()
        if out is not None:
            guard(_ask)(out)
        known = _active.known(target)
        if known:
            return known
        handle = Handle()
        if target is None:
            handle.step, handle.out = step, out
            guard(_search)(handle)
        else:
            guard(_attach)(handle, target, optimizer, step, out)
        if guard.off:
            handle.detach()
        return handle


def _ask(out: str | os.PathLike[str]) -> None:
    """Handle `out` of a call of `attach`: until a recording has begun, the last call decides."""
    recorder, search = _active.recorder, _active.search
    if recorder is None:
        if search is not None:
            search.out = out
    elif Path(out).absolute() != recorder.folder.absolute():
        why = f"this process is recorded in {recorder.folder}, until all handles are detached"
        say(f"{recorder.guard.who}: nothing goes into {out}: {why}")


def _attach(handle: Handle, target: Any, optimizer: Any, step: int, out: Any) -> None:
    way, config = way_of(target, optimizer, step)
    _active.begins_no_more()
    if _active.recorder is None:
        if out is None and _active.search is not None:
            out = _active.search.out
        first = getattr(target, "global_steps", step - 1) + 1
        _active.recorder = _record(out, config, target, first)
    handle.target = weakref.ref(target)
    handle.optimizer = weakref.ref(optimizer) if optimizer is not None else _nobody
    _active.handles.append(handle)
    way(_active.recorder, handle.patches)
    _active.recorder.timeline.flush()  # names of phases: the first may never end


def _begin_anew(out: Path) -> None:
    """Continue in a new recording, as another launch, because an engine went back to a step that is
    already recorded.

    Models without an engine keep counting their steps.
    """
    with _active.attaching():
        recorder, handles = _active.recorder, _active.handles[:]
        models = [parts for parts in recorder.models.values() if parts.model() is not None]
        steps = {id(parts.model()): parts.track.step for parts in models}
        for handle in handles:
            handle.patches.undo()
        recorder.close()
        _active.recorder, _active.handles, _active.before = None, [], None
        guard = Guard("attaching again")
        for handle in handles:
            target = handle.target()
            if target is not None:
                guard(_attach)(handle, target, handle.optimizer(), steps.get(id(target), 1), out)


def _search(handle: Handle) -> None:
    """Attach to targets as they are found; they are detached together with `handle`."""
    from dsprof.hook.models.finding import Search

    found: list[Handle] = []

    def attached(target: Any, optimizer: Any, begins: bool) -> None:
        if _active.known(target) is None:  # else it is detached by whoever attached to it
            found.append(_handle(target, optimizer, handle.step + 1, handle.out))
            recorder = _active.recorder
            if begins and recorder and _active.known(target) is found[-1]:
                timeline = recorder.timeline
                if not timeline.tracks[-1].begin:  # else it has taken over a track
                    timeline.begin(timeline.tracks[-1])

    def lost() -> None:
        ends()
        for one in found:
            one.detach()

    def ends() -> None:
        atexit.unregister(ends)
        mine = _active.search is handle  # not in a process that was forked
        asked = handle.together is not None  # then `dsprof attach --pid` tells it itself
        if mine and not asked and search.trained and not (found or _active.has_recorded):
            notices.nothing_recorded()

    search = Search(attached, lost, handle.may_begin, _active.targets)
    search.start(handle.patches)
    _active.search = handle
    atexit.register(ends)
    _active.beginning = Guard(beginning.WHAT)(beginning.begin)(handle.out, lambda: search.trained)
    handle.patches.undo_with(_active.begins_no_more)


def is_attached() -> bool:
    """Whether something of this process is being recorded."""
    return bool(_active.handles)


def is_searching() -> bool:
    """Whether targets are found and recorded from now on."""
    return _active.search is not None


def stop_waiting() -> None:
    """End a search that waits for ranks which an earlier command was to join, and has not: it may
    have been ended meanwhile.
    """
    search = _active.search
    if search and search.together and not search.together.is_complete():
        search.detach()


def recorded_in() -> str | None:
    """The folder into which this process is recorded; None if it is not yet, or not at all."""
    return str(_active.recorder.folder) if _active.handles else None


def joined(undo: Callable[[], None], mine: str, all_: Sequence[str]) -> None:
    """This process was joined while it trains (`dsprof.hook.entering.join`): its models count their
    steps with the other ranks that are (`Together`), and `undo` is called when the search ends.

    Raises:
        OSError: this rank cannot tell the others.
    """
    from dsprof.hook.entering.together import Together

    search = _active.search
    if search is None:
        return
    search.patches.undo_with(undo)
    try:
        search.together = Together(mine, all_)
    except BaseException:
        search.detach()
        raise


def detach_all() -> bool:
    """End every recording and search of this process, once nothing is being attached; whether
    there was one.
    """
    if _active.under_way:
        _active.is_to_end = True
        return True
    handles = [*filter(None, [_active.search]), *_active.handles]
    for handle in handles:
        handle.detach()
    Guard("detaching")(_active.close)()
    return bool(handles)


def _record(out: Any, config: Mapping[str, Any], target: Any, first: int) -> Any:
    from multiprocessing import parent_process, util

    from dsprof.hook.recorder import Recorder, folder

    place, before = folder(out), _active.before
    counts = hasattr(target, "global_steps") or not (_active.search and _active.search.together)
    goes_on = before is not None and counts and before.goes_on(target, first, place)
    recorder = Recorder(
        place, config, Guard(), before.name if before and goes_on else None, shares_launch=counts
    )
    with ExitStack() as unless_it_starts:
        unless_it_starts.callback(recorder.close)
        recorder.start()
        notices.another_folder(place)
        recorder.begin_anew = partial(_begin_anew, place)
        unless_it_starts.pop_all()
    _active.has_recorded = True
    atexit.unregister(_last_words)
    atexit.register(_last_words)  # registered after the recorder's own: runs before it
    if parent_process():
        util.Finalize(None, _child_ends, exitpriority=_FIRST)
    return recorder


def _child_ends() -> None:
    """End the recording of a process of `multiprocessing`, which catches the exception that ends it
    and, if forked, skips `atexit`.

    Processes that PyTorch starts pass the exception on to their parent and then exit. From Python
    3.13 on it is gone by then, so what ended the process is unknown.
    """
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit) and error.code:
        error = error.__context__
    _last_words(error)
    if _active.recorder:
        _active.recorder.close()


def _last_words(error: BaseException | None = None) -> None:
    """Record the exception that ends this process, if there is one: Python keeps an uncaught one.

    Interactive sessions are left out, because they keep exceptions that ended nothing; so is
    Ctrl-C, which is no fault.
    """
    recorder = _active.recorder
    error = error or getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if recorder and isinstance(error, Exception) and not hasattr(sys, "ps1"):
        recorder.guard(tell)(recorder, error)


def way_of(target: Any, optimizer: Any, step: int) -> tuple[Any, Mapping[str, Any]]:
    """A function that records `target`, given a recorder and patches; and the target's
    configuration, by names of `events.CONFIG`.

    Raises:
        DsprofError: `target` is neither an engine nor a model, or a model without an optimizer.
    """
    from dsprof.hook.models import deepspeed, modules, pipeline

    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(target).__mro__}
    for name, kind in (("PipelineEngine", pipeline), ("DeepSpeedEngine", deepspeed)):
        if ("deepspeed", name) in kinds:
            return partial(kind.attach, target), deepspeed.config(target)
    what = f"attach({type(target).__name__})"
    if ("torch", "Module") not in kinds:
        raise DsprofError("is neither a DeepSpeed engine nor a model", what)
    if optimizer is None:
        raise DsprofError("needs the optimizer", what, "attach(model, optimizer=...)")
    return partial(modules.attach, target, optimizer, step), {}
