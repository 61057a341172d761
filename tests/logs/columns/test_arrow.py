"""Arrow arrays are made and read without pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dsprof.logs.columns import arrow
from tests.conftest import without_pandas

LOGS = Path(__file__).parents[3] / "sample_logs"


@given(st.lists(st.none() | st.binary(max_size=5)))
def test_bytes_and_gaps_are_those_of_the_list(texts: list[bytes | None]) -> None:
    assert arrow.binaries(texts).equals(pa.array(texts, pa.binary()))


@given(st.lists(st.text(max_size=5)))
def test_words_are_those_of_the_list(texts: list[str]) -> None:
    assert arrow.strings(texts).equals(pa.array(texts, pa.string()))


@given(st.lists(st.none() | st.integers(-9, 9)), st.integers(0, 20))
def test_numbers_come_back_from_any_slice(values: list[int | None], begin: int) -> None:
    missing = np.array([value is None for value in values], bool)
    array = arrow.numbers(np.array([value or 0 for value in values], np.int64), missing)
    assert array.equals(pa.array(values, pa.int64()))
    found, gaps = arrow.numpy_of(array[begin:])
    assert gaps.tolist() == missing[begin:].tolist()
    assert [None if gap else one for one, gap in zip(found.tolist(), gaps, strict=True)] == values[
        begin:
    ]


READ = f"""
import sys
from pathlib import Path
from dsprof import logs
read = [logs.read([log]).events.num_rows for log in Path({str(LOGS)!r}).glob("*.log")]
print(len(read), sum(read), "pandas" in sys.modules)
"""


@without_pandas
def test_reading_logs_does_not_import_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True)
    logs, rows, imported = done.stdout.split()
    assert int(logs) > 30
    assert int(rows) > 1000
    assert imported == "False"
