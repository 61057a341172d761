"""DDP's gradient all-reduce: what backward waits for at its end."""

from __future__ import annotations

import weakref
from time import perf_counter_ns as now
from typing import TYPE_CHECKING, Any

from dsprof.hook.models.buffers import by_others_so_far, issued_between
from dsprof.hook.models.outputs import at_gradient, first_with_gradient
from dsprof.hook.models.parts import Parts
from dsprof.hook.spans import Frame

if TYPE_CHECKING:
    from dsprof.hook.models.backward import Backward


class Reducer:
    """DDP's gradient all-reduce, which C++ issues and waits for at the end of backward.

    Autograd runs final callbacks in the order in which they were queued. Ours, queued when backward
    begins, runs once the last gradient is computed, before that of DDP's reducer, which waits for
    the buckets. In turn it queues another one, which runs after the reducer's. The time between our
    two callbacks is the exposed time of the all-reduce.

    With several models, the wait of one ends where that of the next begins, so no time counts
    twice.
    """

    def __init__(self, model: Any, parts: Parts, backward: Backward) -> None:
        from torch.autograd import Variable

        self.model, self.parts, self.backward = weakref.ref(model), parts, backward
        self.queue = Variable._execution_engine.queue_callback  # noqa: SLF001
        self.begun, self.computed = parts.guard(self._begun), parts.guard(self._computed)
        self.reduced = parts.guard(self._reduced)
        self.computed_inside = parts.guard(self._computed_inside)
        self.reduced_inside = parts.guard(self._reduced_inside)
        learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.on_cpu = all(parameter.is_cpu for parameter in learned)
        self.bytes = sum(parameter.nbytes for parameter in learned)
        self.group = model.process_group  # keeps nothing alive that the model does not
        self.began = self.since = 0
        self.issued: int | None = 0  # calls by others when backward began; None if unknown
        self.buckets: int | None = 0  # -1 until they are counted, None if nobody can
        self.recorded = 0  # number of buckets that the recording has
        self.waited = 0  # ns, in backwards inside this one
        self.held: tuple[Frame | None, int] = (None, 0)  # open phase at `since`, its blocked time
        self.queued = False  # backward is in progress and our callback is queued

    def watch(self, output: Any) -> None:
        """Notice when backward through `output` begins, whoever calls it."""
        if self.backward.several:
            self.backward.watch(self.parts, output, self._begun)
        else:
            self.begins_at(first_with_gradient(output))

    def begins_at(self, tensor: Any) -> None:
        """Notice when backward through `tensor` begins.

        Called with the tensor that backward begins at, because a model may return any object that
        holds its loss.
        """
        if not self.parts.timeline.is_elsewhere():  # evaluation on another thread changes nothing
            self.backward.forget()  # left over from a backward that an exception ended
        if getattr(tensor, "requires_grad", False) and not tensor.is_leaf:
            at_gradient(tensor, self.begun)

    def _begun(self, _: Any) -> None:
        """Backward through this model begins. DDP decided in forward whether to reduce; the number
        of collectives that it issues from here on will tell.
        """
        if self.queued:
            return
        for other in self.backward.reducing:  # from here on, collectives are this model's
            other.count_buckets()
        self.backward.reducing.append(self)
        self.queued = True
        self.began, self.issued, self.buckets = now(), self._count(), -1
        self.queue(self.computed)

    def _computed(self) -> None:
        if self._is_finalized_by_hand():
            self.count_buckets()
            return
        for other in self.backward.reducing.copy():
            if other is not self and other.since:
                other.tell()
        self.since, self.held = now(), self._held()
        self.parts.recorder.collectives.others_wait("all_reduce", self.group)
        self.queue(self.reduced)

    def _reduced(self) -> None:
        if self.queued:
            self.tell()

    def _is_finalized_by_hand(self) -> bool:
        """Whether the loop itself calls `finalize_backward` (PyTorch 2.15), which then waits."""
        return getattr(self.model(), "require_manual_backward_finalization", False)

    def finalizes(self) -> None:
        """The loop calls `finalize_backward`, in backward or after it: the wait begins."""
        self.count_buckets()
        self.since, self.held = now(), self._held()
        self.parts.recorder.collectives.others_wait("all_reduce", self.group)

    def count_buckets(self) -> None:
        """Count the collectives issued since this model's backward began, unless done."""
        if self.buckets is not None and self.buckets < 0:
            self.buckets = issued_between(self.issued, self._count())

    def tell(self) -> None:
        """The wait is over: record it."""
        self.count_buckets()
        blocked = -1
        if self.on_cpu:
            blocked = self.waited + (self._since_then() if self.since else 0)
        begin, self.since, self.waited, self.queued = self.since or now(), 0, 0, False
        self.backward.reducing.remove(self)
        collectives = self.parts.recorder.collectives
        collectives.others_waited()
        if self.buckets is not None and self.buckets > 0:
            collectives.by_others(
                "all_reduce", self.group, begin, blocked, self.buckets, self.bytes
            )
            self._tell_buckets(self.buckets)
        else:  # none, or a communication hook issued them from Python
            seen = collectives.waited_for(self.group, self.began, begin, blocked)
            if self.buckets is None and not seen:
                collectives.uncounted(blocked)

    def _tell_buckets(self, number: int) -> None:
        """Into how many calls a reduction is divided: DDP makes its buckets anew behind the first.
        Only by that, calls of a step tell how often it reduced.
        """
        if number != self.recorded:
            self.recorded = number
            self.parts.recorder.writer.config("gradient_buckets", number, self.parts.track.number)

    def inside(self, _: Any) -> None:
        """A backward has begun inside this one and may reduce, too: measure its wait as well."""
        if self.queued and self.on_cpu:
            self.queue(self.computed_inside)

    def _computed_inside(self) -> None:
        self.since, self.held = now(), self._held()
        self.queue(self.reduced_inside)

    def _reduced_inside(self) -> None:
        self.waited, self.since = self.waited + self._since_then(), 0

    def _held(self) -> tuple[Frame | None, int]:
        """The innermost open phase, and the time it has been blocked so far, ns."""
        stack = self.parts.timeline.stack
        return (stack[-1], stack[-1].blocked) if stack else (None, 0)

    def _since_then(self) -> int:
        """Duration of our wait, ns, without the waits of FSDP2 in it, which are recorded
        already.
        """
        frame, before = self.held
        inner = frame.blocked - before if frame is not None and frame is self._held()[0] else 0
        return now() - self.since - inner

    def _count(self) -> int | None:
        return by_others_so_far(self.parts.recorder.collectives, self.group)
