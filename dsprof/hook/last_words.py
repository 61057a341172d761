"""What ends a process, in the words of its exception."""

from __future__ import annotations

import re
import traceback
from typing import Any, Final

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
    recorder.writer.problem(name, said[:_MOST_SAID])


def _own_words(said: str) -> str:
    """What was raised in a worker of a data loader, and there: torch quotes all its traceback."""
    quotation = _QUOTES.match(said)
    if not quotation:
        return said
    raised = re.split(r"\n[ \t][^\n]*(?=\n\S)", said)[-1].strip()
    return f"{raised} ({quotation[1]})"
