"""`attach` and the handle it returns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

from dsprof.errors import DsprofError
from dsprof.hook.guard import Guard
from dsprof.hook.patches import Patches


class Handle:
    """A recording under way; `detach` or leaving the `with` block ends it."""

    def __init__(self) -> None:
        self.patches = Patches()
        self.target: Any = None  # its number: a handle keeps no engine alive

    @property
    def folder(self) -> str | None:
        """Where the recording goes; None if there is none."""
        recorder = _active.recorder
        return str(recorder.folder) if recorder else None

    def metric(self, name: str, value: float, step: int) -> None:
        """Record a number that training knows and the hook cannot see, `name` of `events`."""
        recorder = _active.recorder
        if recorder:
            recorder.guard(recorder.metric)(name, float(value), step)

    def detach(self) -> None:
        """Restore everything that was touched. The last handle ends the file."""
        self.patches.undo()
        _active.release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.detach()


class _Active:
    """The process's recorder, while there are handles."""

    def __init__(self) -> None:
        self.recorder: Any = None
        self.handles: list[Handle] = []

    def release(self, handle: Handle) -> None:
        if handle in self.handles:
            self.handles.remove(handle)
        if not self.handles and self.recorder:
            recorder, self.recorder = self.recorder, None
            recorder.close()


_active = _Active()


def attach(
    target: Any = None,
    *,
    optimizer: Any = None,
    step: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Handle:
    """Record the training of `target` from now on, one file a rank.

    Args:
        target: a DeepSpeed engine (ZeRO or pipeline), or a model: plain, DDP or FSDP2.
            Without one, engines are found as DeepSpeed makes them, and models under DDP
            or FSDP2 at their optimizer's first step.
        optimizer: of a model that is no DeepSpeed engine: its `step` ends a step.
        step: number of the model's next step, where training resumes; engines know theirs.
        out: the run's folder, the same for all ranks; else DSPROF_OUT, else "dsprof-run".

    Nothing is raised: what fails is said in one line on standard error, and the handle
    then stands for no recording. A second call for the same target gives its handle again.
    """
    for known in _active.handles:
        if known.target == id(target):
            return known
    handle, guard = Handle(), _guard()
    if target is None:
        guard(_search)(handle, out)
    else:
        guard(_attach)(handle, target, optimizer, step, out, guard)
    if guard.off:
        handle.patches.undo()
    return handle


def _guard() -> Guard:
    return _active.recorder.guard if _active.recorder else Guard()


def _attach(  # noqa: PLR0917
    handle: Handle, target: Any, optimizer: Any, step: int, out: Any, guard: Guard
) -> None:
    way, config = way_of(target, optimizer, step)
    if _active.recorder is None:
        _active.recorder = _record(out, config, guard)
    handle.target = id(target)
    _active.handles.append(handle)
    way(_active.recorder, handle.patches)


def _search(handle: Handle, out: Any) -> None:
    """What is found is attached to, and detached with `handle`."""
    from dsprof.hook.finding import Search

    found: list[Handle] = []

    def lost() -> None:
        for one in found:
            one.detach()

    search = Search(
        lambda target, optimizer: found.append(attach(target, optimizer=optimizer, out=out)), lost
    )
    search.start(handle.patches)


def is_attached() -> bool:
    """Whether something of this process is being recorded."""
    return bool(_active.handles)


def _record(out: Any, config: Mapping[str, Any], guard: Guard) -> Any:
    from dsprof.hook.recorder import Recorder, folder

    recorder = Recorder(folder(out), config, guard)
    recorder.start()
    return recorder


def way_of(target: Any, optimizer: Any, step: int) -> tuple[Any, Mapping[str, Any]]:
    """How to record that target, and what its configuration says.

    Raises:
        DsprofError: it is nothing that can be recorded, or its optimizer is not named.
    """
    from dsprof.hook import deepspeed, modules, pipeline

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
