"""Logs inside documents: records of collectors, notebooks, pages and tables."""

# ruff: noqa: DTZ001  # the expected times are UTC, as their rows are
from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from dsprof.logs.sources.containers import is_plain_text
from dsprof.logs.sources.exports import (
    Objects,
    document_kind,
    notebook_line,
    page_line,
    record_of,
    written_line,
)
from tests.logs.reading import TIMERS, Row, difference, read

SAMPLES = Path(__file__).parents[3] / "sample_logs"
AT = "2024-01-02T03:04:05.123456Z"
TOLD_AT = datetime(2024, 1, 2, 3, 4, 5, 123456)
EPOCH = 1704164645.123456  # the same

Export = Callable[[Sequence[str]], str]


def records(make: Callable[[str], dict[str, Any]], indent: int | None = None) -> Export:
    """A record a line, or all in a list that is laid out."""

    def export(lines: Sequence[str]) -> str:
        if indent is not None:
            return json.dumps([make(line) for line in lines], indent=indent)
        return "".join(json.dumps(make(line)) + "\n" for line in lines)

    return export


def events(lines: Sequence[str]) -> str:
    told = [{"timestamp": int(EPOCH * 1000), "message": line} for line in lines]
    return json.dumps({"events": told, "nextForwardToken": "f/1"}, indent=4)


def kaggle(lines: Sequence[str]) -> str:
    told = [{"stream_name": "stdout", "time": 9.5, "data": line + "\n"} for line in lines]
    return "[" + "\n,".join(map(json.dumps, told)) + "\n]\n"


def notebook(indent: int | None, *, joined: bool = False) -> Export:
    def export(lines: Sequence[str]) -> str:
        text = [line + "\n" for line in lines]
        printed = {"name": "stdout", "text": "".join(text) if joined else text}
        cell = {"cell_type": "code", "outputs": [printed], "source": ["!deepspeed train.py"]}
        return json.dumps({"cells": [cell], "nbformat": 4, "nbformat_minor": 5}, indent=indent)

    return export


def page(lines: Sequence[str]) -> str:
    body = "\n".join(f'<span class="line">{html.escape(line)}</span>' for line in lines)
    return f"<!DOCTYPE html>\n<html><body><pre>\n{body}\n</pre></body></html>\n"


def table(lines: Sequence[str]) -> str:
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["@timestamp", "@message"])
    rows.writerows([AT, line] for line in lines)
    return text.getvalue()


def asciinema(lines: Sequence[str]) -> str:
    """A terminal's output comes in pieces that are no lines."""
    text, header = "".join(line + "\r\n" for line in lines), {"version": 2, "width": 80}
    told = [[0.25, "o", text[at : at + 700]] for at in range(0, len(text), 700)]
    return "".join(json.dumps(one) + "\n" for one in (header, [0.1, "i", "ls\r"], *told))


def loki(indent: str) -> Export:
    """Its own answer, which lists the newest line first."""

    def export(lines: Sequence[str]) -> str:
        values = [[f"{1704164645123456}{n:03d}", line] for n, line in enumerate(lines)]
        told = f",{indent}".join(map(json.dumps, values if indent else reversed(values)))
        return f'{{"data": {{"result": [{{"stream": {{}}, "values": [{told}]}}]}}}}\n'

    return export


def comment(lines: Sequence[str]) -> str:
    return "<br>".join(line.replace("'", "&#39;") for line in lines) + "\n"


EXPORTS: dict[str, Export] = {
    "journald": records(lambda line: {"__REALTIME_TIMESTAMP": "1704164645123456", "MESSAGE": line}),
    "fluentd": lambda lines: "".join(
        "2024-01-02 03:04:05.123456 +0000 kube.a: " + json.dumps({"log": line}) + "\n"
        for line in lines
    ),
    "Fluent Bit": records(lambda line: {"date": EPOCH, "log": line, "stream": "stdout"}),
    "Loki": records(lambda line: {"labels": {"app": "a"}, "line": line, "timestamp": AT}),
    "python's logging": records(lambda line: {"asctime": AT, "levelname": "I", "message": line}),
    "Google Cloud": records(lambda line: {"textPayload": line, "timestamp": AT}, 2),
    "CloudWatch": events,
    "Kaggle": kaggle,
    "a notebook": notebook(1),
    "a notebook on one line": notebook(None),
    "a notebook with joined lines": notebook(None, joined=True),
    "a page": page,
    "a comment on one line": comment,
    "a comment": lambda lines: "".join(line + "<br />\n" for line in lines),
    "asciinema": asciinema,
    "Loki's own": loki(""),
    "Loki's own, a line each": loki("\n"),
    "a table": table,
}
UNTIMED = {name for name in EXPORTS if name.startswith(("Kaggle", "a no", "a p", "a co", "asc"))}
#: What an export adds or replaces.
OWN = {"at": None, "line": 0, "record": 0, "source": None, "host": None}


def rows_of(text: str, portions: Sequence[int] = ()) -> list[Row]:
    rows: list[Row] = read(text.encode(), portions).events.to_pylist()
    return [row | OWN for row in rows]


@pytest.mark.parametrize("name", ["killed_rank_torchrun_0.19.8", "comms_table_zero3_0.16.9"])
@pytest.mark.parametrize("export", EXPORTS)
def test_an_export_is_read_as_the_log_that_it_holds(export: str, name: str) -> None:
    lines = (SAMPLES / f"{name}.log").read_text().splitlines()
    assert rows_of(EXPORTS[export](lines)) == rows_of("\n".join(lines) + "\n")


@pytest.mark.parametrize("export", EXPORTS)
def test_an_export_is_read_the_same_however_it_comes(export: str) -> None:
    text = EXPORTS[export]([TIMERS.decode(), 'a "b" <c> & \\d', "step=1"] * 9).encode()
    whole = read(text).events
    assert whole.num_rows
    assert difference(read(text, [7] * (len(text) // 7)).events, whole) == ""
    assert not is_plain_text(text)


@pytest.mark.parametrize("export", EXPORTS)
def test_the_time_of_an_export_is_that_of_its_lines(export: str) -> None:
    (at,) = set(read(EXPORTS[export]([TIMERS.decode()] * 3).encode()).events["at"].to_pylist())
    assert (at is None) == (export in UNTIMED)
    assert at is None or abs((at.replace(tzinfo=None) - TOLD_AT).total_seconds()) < 0.001


@pytest.mark.parametrize("edge", ["| ", "", "  |   | "], ids=["barred", "open", "empty-cells"])
def test_cells_of_a_table_in_markdown_are_no_part_of_what_was_printed(edge: str) -> None:
    lines = [
        "03/15/2024 13:21:52 - INFO - a - begins",
        "Traceback (most recent call last):",
        'File "/data/train.py", line 4, in <module>',
        "RuntimeError: rank0: [1, 2], rank1: [1, 3]",
    ]
    first, *others = [f"2024-03-15 13:21:52.197 | {line} |  " for line in lines]
    text = "\n".join([first, "-- | -- | --", *(edge + line for line in others)]) + "\n"
    (failed,) = [row for row in read(text.encode()).events.to_pylist() if row["kind"] == "problem"]
    assert failed["text"] == "RuntimeError: rank0: [1, 2], rank1: [1, 3]"
    assert failed["line"] == 5
    assert not is_plain_text(text.encode())


def test_bars_of_a_log_that_begins_with_no_table_stay() -> None:
    assert document_kind(b"| a | b |\n| c | d |\n|---|---|\n") == ""
    assert document_kind(b"a log\n-----------\n") == ""


@pytest.mark.parametrize("sign", ["ESC", "#033", "\\x1b", "\\u001b", "\ufffd", ""])
@pytest.mark.parametrize("end", ["^M", "#015"])
def test_control_characters_that_were_written_out_hide_nothing(sign: str, end: str) -> None:
    bar = f"{end}  5%|▌         | 5/100 [00:10<03:10,  2.00s/it]{end} 10%|█         | 10/100 "
    text = f"{sign}[32m{TIMERS.decode()}{sign}[0m\n{sign}[1;31mthe ^Model of #1{sign}[0m\n"
    text += f"{bar}[00:20<03:00,  2.00s/it]\n"
    assert rows_of(text) == rows_of(
        re.sub(re.escape(sign) + r"\[[\d;]+m", "", text).replace(end, "\r")
    )
    assert b"^Model" in written_line(b"the ^Model\n")


RAYS = (
    " (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log deduplication, or see "
    "https://docs.ray.io/en/master/ray-observability/user-guides/configure-logging.html"
    "#log-deduplication for more options.)"
)


@pytest.mark.parametrize(
    "mark", [" [repeated %dx across cluster]", "\x1b[32m [repeated %dx across cluster]\x1b[0m"]
)
def test_what_ray_says_behind_a_line_that_others_printed_too_hides_nothing(mark: str) -> None:
    line = "(W pid=81, ip=10.0.0.7) step:%d - timing_s/gen:80.5 - timing_s/step:90.5"
    error = "(W pid=81, ip=10.0.0.7) [rank1]: torch.OutOfMemoryError: CUDA out of memory."
    plain = [line % step for step in range(1, 9)] + [error]
    told = [one + mark % (n + 2) + RAYS * (n == 0) for n, one in enumerate(plain)]
    assert repr(rows_of("\n".join(told))) == repr(rows_of("\n".join(plain)))


def test_a_record_names_its_pod() -> None:
    for told in (
        {"kubernetes": {"pod_name": "job-0"}, "log": "a"},
        {"resource": {"labels": {"pod_name": "job-0"}}, "textPayload": "a"},
        {"_HOSTNAME": "job-0", "MESSAGE": "a"},
    ):
        text = json.dumps({**told, "time": AT}).replace('"a"', json.dumps(TIMERS.decode()))
        assert set(read(text.encode()).events["host"].to_pylist()) == {"job-0"}


def test_a_record_of_several_lines_is_several_lines() -> None:
    text = json.dumps({"message": f"{TIMERS.decode()}\n{TIMERS.decode()}", "timestamp": AT}) + "\n"
    log = read(text.encode())
    assert len(set(log.events["line"].to_pylist())) == 2
    assert None not in log.events["at"].to_pylist()


@pytest.mark.parametrize(
    "line",
    [
        b'{"loss": 2.5, "message": "step"}',
        b'{"current_steps": 5, "loss": 2.5}',
        b'{"message": 5}',
        b'{"log": "a"',
        b'{"log": ' + b"[" * 100_000,
        b"[1, 2]",
        b"{'loss': 2.5}",
        b"plain",
    ],
)
def test_a_line_that_is_no_collectors_record_stays_as_it_is(line: bytes) -> None:
    assert record_of(line) is None


@pytest.mark.parametrize("time", ["9" * 400, '"\u00b2"', "NaN", "Infinity", "-1", "true", '"9e9"'])
def test_a_record_whose_time_is_none_has_none(time: str) -> None:
    line = f'{{"message": "step", "ts": {time}}}'.encode()
    assert record_of(line) == (b"", b"stdout", b"step", True)


@pytest.mark.timeout(20)
def test_a_string_of_escaped_quotes_that_never_ends_costs_no_more_than_its_length() -> None:
    line = b'"' + b'\\"' * 300_000
    assert notebook_line(line) == line


@pytest.mark.parametrize(
    "head",
    [
        b"[2024-01-02 03:04:05,123] [INFO] a\n",
        b'{\n  "log_history": [\n    {"loss": 2.5}\n',
        b"step,loss\n1,2.5\n",
        b"time,step\n",
        b"<IPython.core.display.HTML object>\n",
        b"\x1b[32mgreen\x1b[0m ^[[0m [5m] ^Model\n",
        b"",
    ],
)
def test_what_only_begins_like_a_document_is_none(head: bytes) -> None:
    assert document_kind(head) == ""


def test_braces_that_hold_no_record_stay_as_they_are() -> None:
    lines = [
        b"{\n",
        b'  "events": [\n',
        b"    {\n",
        b'      "a": 1.5\n',
        b"    }\n",
        b"  ]\n",
        b"}\n",
    ]
    objects = Objects()
    assert b"".join(map(objects.line, lines)) + objects.rest() == b"".join(lines)


STATE = """{
  "global_step": 20,
  "log_history": [
    {
      "clip_ratio": 0.0,
      "learning_rate": 1e-05,
      "loss": 1.875,
      "step": 10
    },
    {
      "loss": NaN,
      "step": 20
    },
    {
      "step": 20,
      "train_loss": 1.8125,
      "train_runtime": 250.0
    }
  ],
  "max_steps": 20
}
"""


def test_what_the_trainer_keeps_in_its_state_is_read_as_it_prints_it() -> None:
    told = read(STATE.encode()).events.to_pylist()
    rows = [row for row in told if row["name"] in ("loss", "train_runtime")]
    assert [(row["step"], row["line"]) for row in rows] == [(10, 4), (20, 10), (None, 14)]
    assert (rows[0]["value"], rows[1]["text"], rows[2]["seconds"]) == (1.875, "nan", 250)


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")], ids=["blanks", "none"])
def test_the_trainers_state_may_be_one_line(separators: tuple[str, str]) -> None:
    state = json.loads(STATE)
    state["log_history"] *= 3000  # of which a part is decided on
    text = json.dumps(state, separators=separators)
    whole = [row for row in read(text.encode()).events.to_pylist() if row["name"] == "loss"]
    assert [row["step"] for row in whole[:4]] == [10, 20, 10, 20]
    assert (len(whole), whole[0]["value"], whole[1]["text"]) == (6000, 1.875, "nan")
    cut = read(text[: len(text) // 2].encode()).events.to_pylist()
    assert sum(row["name"] == "loss" for row in cut) == 3000


def test_what_lies_deeper_in_the_trainers_state_gives_no_names_of_its_own() -> None:
    deep = STATE.replace('"clip_ratio": 0.0', '"rewards": {"format": 1.0}')
    for text in (deep, json.dumps(json.loads(deep))):
        names = {row["name"] for row in read(text.encode()).events.to_pylist()}
        assert names == {"loss", "lr", "train_loss", "train_runtime"}


def test_a_dot_between_words_is_read_in_any_encoding() -> None:
    line = "[rank 0] step 500 · loss 2.875 · lr 5.0e-5\n"
    for encoding in ("utf-8", "cp1252"):
        rows = read(line.encode(encoding)).events.to_pylist()
        assert ("loss", 2.875) in [(row["name"], row["value"]) for row in rows]


def test_a_line_of_a_notebook_that_prints_nothing_stays_as_it_is() -> None:
    for line in (b' "metadata": {\n', b'  "execution_count": 3,\n', b"plain\n"):
        assert notebook_line(line) == line
    assert notebook_line(b'      "a \\u001b[32m\\"b\\"\\n",\n') == b'a \x1b[32m"b"\n'


def test_marks_of_a_page_are_no_text() -> None:
    assert page_line(b"<b>{&#39;loss&#39;: 1 &lt; 2}</b>\n") == b"{'loss': 1 < 2}\n"
