"""Signs that a copy changed are put back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from dsprof.logs.sources.containers import is_plain_text
from tests.logs.reading import PFX, STEP, TIMERS, Row, rows

PRINTED = b"".join(
    PFX + STEP % n + b"\n"
    + PFX + b"time (ms) | fwd_microstep: 10.50 | bwd_microstep: 20.50\n"
    + PFX + TIMERS + b"\n"
    + b"{'loss': 2.5, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.%d}\n" % n
    + b"  9%%|9   | %d/99 [05:50<09:17,  1.24s/it]\n" % n
    for n in range(1, 5)
)  # fmt: skip


def told(text: bytes) -> list[tuple[Any, ...]]:
    named: list[Row] = rows(text)
    return [(one["name"], one["step"], one["seconds"], one["value"], one["at"]) for one in named]


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: text.replace(b" ", b"\xc2\xa0"),
        lambda text: text.replace(b"  ", b"\xc2\xa0 "),
        lambda text: text.replace(b"_", b"\\_"),
        lambda text: re.sub(rb"([][_|*<])", rb"\\\1", text),
        lambda text: text.replace(b"'", b"&#39;").replace(b"<", b"&lt;"),
        lambda text: text.replace(b"'", b"\xe2\x80\x99"),
        lambda text: re.sub(rb"'(\w+)'", b"\xe2\x80\x98\\1\xe2\x80\x99", text),
        lambda text: text.replace(b"_", b"_\xe2\x80\x8b"),
    ],
)
def test_a_log_that_a_copy_changed_reads_like_the_printed_one(
    changed: Callable[[bytes], bytes],
) -> None:
    assert changed(PRINTED) != PRINTED
    assert told(changed(PRINTED)) == told(PRINTED)


@pytest.mark.parametrize(
    "sample", ["don\u2019t know", "x\\_1 = \\[1\\]", "a &gt; b", "C\u2019est vrai\u00a0: oui"]
)
def test_signs_in_a_text_that_a_model_wrote_now_and_then_change_nothing(sample: str) -> None:
    text = PRINTED * 4 + f"{sample}\n".encode() * 2
    assert is_plain_text(text)
    assert not is_plain_text(text.replace(b"_", b"\\_"))
