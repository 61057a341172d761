"""Lines that look like metrics are found wherever they stand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsprof.logs.scanning import coverage
from dsprof.logs.scanning.coverage import Unread
from tests.logs.reading import read

SNIPPETS = [
    "a:1.5",
    "a: 1.5",
    "a = 2e-3",
    "b': '3.0'",
    "x =-1.0",
    ":",
    "= ",
    " ",
    "\n",
    "\r",
    "7",
    "%: 9.",
    ".5",
    "ip=10.0",
    "123456789012",
]


@given(st.lists(st.sampled_from(SNIPPETS)).map("".join))
def test_every_metric_begins_at_a_sign_and_a_sign_before_decimals_is_one(
    text: str,
) -> None:
    piece = text.encode()
    letters = np.frombuffer(piece, np.uint8)
    signs = coverage._signs(letters)
    sure = signs[coverage._are_decimals(letters, signs)].tolist()
    metrics = {match.start() for match in coverage._METRIC.finditer(piece)}
    assert set(sure) <= metrics <= set(signs.tolist())


@pytest.mark.parametrize(
    ("piece", "shapes"),
    [
        (b"a:1.5", {"a:#.#"}),
        (b"x\nloss: 2.5 lr=1e-4\n\ny\n", {"loss: #.# lr=#e-#"}),
        (b"\rloss: 2.5\rlr = 1e-4\r", {"loss: #.#", "lr = #e-#"}),
        (b"12:30:05.123 x\nwarm: up\nC:\n=\n", set()),
        (b"(Actor pid=7, ip=10.81.10.44) up\ntorch==2.5.1\nscale: 1024.5\n", {"scale: #.#"}),
    ],
)
def test_lines_that_look_like_metrics_are_told_by_their_shape(
    piece: bytes, shapes: set[str]
) -> None:
    unread = Unread()
    unread.look(piece, set(), 0)
    assert set(unread.shapes) == shapes
    assert unread.metric_lines == len(shapes)


def test_a_read_line_that_holds_an_address_alone_is_no_metric_either() -> None:
    unread = Unread()
    unread.look(b"worker at ip=10.81.10.44\nloss: 2.5\n", {0, 25}, 0)
    assert (unread.metric_lines, unread.read_lines) == (1, 1)


def test_timers_with_decimal_commas_are_not_called_understood() -> None:
    line = b"[Rank 0] time (ms) | fwd: 100,50 | bwd: 1.250,00 | step: %d,00\n"
    plain = b"[Rank 0] time (ms) | forward: 12,3 | backward: 4,25 | step: 0,5\n"
    log = read(b"".join(line % i for i in range(20)) + plain)
    assert log.events.num_rows == 0
    assert (log.coverage.metric_lines, log.coverage.read_lines) == (21, 0)
    assert read(plain.replace(b",", b".")).coverage.read_lines == 1


@pytest.mark.parametrize("position", ["4%|#  | 3/80", "|    | 3/?"])
def test_what_a_loop_writes_in_its_bar_is_no_line_that_was_not_read(position: str) -> None:
    beside = "[00:09<03:51, 3.00s/it, v_num=0, loss=2.125, acc=0.5]"
    bar = f"Epoch 0:  {position} {beside}".encode()
    text = bar + b"\r" + bar + b"speed: 1.5\n" + bar + b"\n"
    coverage = read(text).coverage
    assert (coverage.metric_lines, coverage.read_lines) == (1, 0)


def test_a_part_of_a_model_that_is_printed_is_no_metric() -> None:
    unread = Unread()
    unread.look(
        b"    (norm): LlamaRMSNorm((128,), eps=1e-06)\n"
        b"[rank0]:       (0-11): 12 x Block(rate=0.5)\n"
        b"        (drop): Dropout(p=0.05, inplace=False)\n"
        b"step (first): loss = 1.5\n"
        b"  (0): Linear(4.16 K = 24.06% Params, 143.53 us = 0.5% latency, in_features=64)\n",
        set(),
        0,
    )
    assert [shape.partition(",")[0] for shape in unread.shapes] == [
        "step (first): loss = #.#",
        "(#): Linear(#.# K = #.#% Params",
    ]
