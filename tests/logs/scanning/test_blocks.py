"""Lines that belong to an opening line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dsprof
from tests.logs.reading import rows

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 1, in step\n    go()\n'


@pytest.mark.parametrize("length", [1, 599, 600, 601, 10_000, 100_000])
def test_an_exception_is_told_however_long_its_message(tmp_path: Path, length: int) -> None:
    log = tmp_path / "run.log"
    log.write_text(f"{TRACEBACK}ValueError: {'m' * length}\nnext\n", encoding="utf-8")
    (told,) = dsprof.load(str(log)).problems["text"]
    assert told.startswith("ValueError: m")


TABLE = (
    b"Comm. Op            Message Size        Count               Total Latency(ms)   "
    b"Avg Latency(ms)     tput_avg (Gbps)     busbw_avg (Gbps)    \n"
    b"broadcast | [Caller Func: _broadcast_model]\n"
    b"                    20.0 B              1                   10.91               "
    b"10.91               0.00                0.00                \n"
)
WRAPPERS = (
    b"worker-1: ",
    b"0: ",
    b"2024-01-02T03:04:05.123456789Z stdout F ",
    b"[pod/train-0/pytorch] ",
    b"[default0]:",
    b"[1,0]<stdout>:",
    b"trainer-1  | ",
    b"> ",
    b"12:",
    b"    12\t",
)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_what_looks_like_a_host_in_a_wrapped_table_is_its_own_text(wrapper: bytes) -> None:
    wrapped = b"".join(wrapper + line for line in TABLE.splitlines(keepends=True))
    (row,) = rows(wrapped, kind="comm")
    assert (row["name"], row["text"], row["value"]) == ("broadcast", "_broadcast_model", None)
    assert (row["seconds"], row["bytes"], row["count"]) == (pytest.approx(0.01091), 20, 1)


@pytest.mark.parametrize(
    "wrapper", ["0:  ", "   0:   ", "gpu-a12-07:   ", "[pod/train-0/pytorch]   "]
)
def test_blanks_that_a_wrapper_puts_before_each_line_are_none_of_a_blocks(wrapper: str) -> None:
    table = TABLE.decode().splitlines()
    (told,) = rows("".join(f"{wrapper}{line}\n" for line in table).encode(), kind="comm")
    assert (told["name"], round(told["seconds"], 5)) == ("broadcast", 0.01091)
    raised = [*TRACEBACK.splitlines(), "ValueError: no"]
    (told,) = rows("".join(f"{wrapper}{line}\n" for line in raised).encode(), kind="problem")
    assert told["text"] == "ValueError: no"


def test_the_settings_of_accelerate_are_read_although_a_number_is_infinite() -> None:
    text = (
        b"[2025-07-03 13:32:40,450] [INFO] [config.py:911:print_user_config]   json = {\n"
        b'    "train_batch_size": 48, \n'
        b'    "steps_per_print": inf, \n'
        b'    "bf16": {\n        "enabled": true\n    }\n}\n'
    )
    (row,) = rows(text, name="ds_config")
    assert json.loads(row["text"])["train_batch_size"] == 48


def test_an_object_that_is_printed_behind_the_settings_is_none_of_them() -> None:
    text = (
        b"[2025-07-03 13:32:40,450] [INFO] [config.py:911:print_user_config]   json = {\n"
        b'    "gradient_clipping": 1.0\n}\n'
        b'Model config GPT2Config {\n  "gradient_clipping": 7.0,\n  "vocab_size": 50257\n}\n'
    )
    (row,) = rows(text, name="ds_config")
    assert json.loads(row["text"]) == {"gradient_clipping": 1.0}
