"""What ends a process: the words of its exception, and where the job's own code met it."""

from __future__ import annotations

import re
import traceback
from types import TracebackType
from typing import Any, Final

from dsprof.hook.looking.stacks import Stacks

_MOST_SAID: Final = 1000  # characters of an exception that are recorded
#: How torch hands on what was raised elsewhere, behind which it quotes the traceback.
_QUOTES: Final = re.compile(
    r"[\w.]+: Caught \w+ (in [^\n]{1,200}?)\.?\nOriginal Traceback \(most recent call last\):\n"
)
#: Names of `events.PROBLEMS`, and how exceptions begin that are more than "exception".
_KINDS: Final = {
    "oom": r"[\w.]*OutOfMemoryError\b|RuntimeError: [A-Z]{3,4} out of memory"
    r"|(?:RuntimeError|torch\.AcceleratorError): CUDA (?:driver )?error: out of memory",
    "host-oom": r"MemoryError\b|numpy\S{1,20}_ArrayMemoryError\b|OSError: \[Errno 12\]"
    r"|RuntimeError: (?:DefaultCPUAllocator: |\[enforce fail at \S*(?:alloc_cpu|CPUAllocator)\.)",
}


def tell(recorder: Any, error: Exception) -> None:
    """Record `error`, after the steps that have ended, whose rows may still be buffered."""
    said = _own_words("".join(traceback.format_exception_only(type(error), error)).strip())
    recorder.timeline.flush()
    name = next((kind for kind, begin in _KINDS.items() if re.match(begin, said)), "exception")
    writer = recorder.writer
    writer.problem(name, said[:_MOST_SAID])
    if place := _own_place(error.__traceback__):
        writer.metric(writer.name("raised_at"), 1.0, text=writer.name(place))


def _own_place(raised: TracebackType | None) -> str:
    """The innermost call of the job's own code, as a traceback writes it; "" if there is none."""
    calls = Stacks().of_traceback(raised)
    own = next((call for call in reversed(calls) if call.is_own), None)
    return f'File "{own.file}", line {own.line}, in {own.function}' if own else ""


def _own_words(said: str) -> str:
    """What was raised in a worker of a data loader, and there: torch quotes all its traceback."""
    quotation = _QUOTES.match(said)
    if not quotation:
        return said
    raised = re.split(r"\n[ \t][^\n]*(?=\n\S)", said)[-1].strip()
    return f"{raised} ({quotation[1]})"
