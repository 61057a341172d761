"""What DeepSpeed's csv monitor wrote: one file a scalar, `samples,value` a line.

A second way in that dodges the timer lines' zeros of 0.6.2 to 0.18.2: the monitor reads
the timers before they are cleared. Its `step` column counts samples, so a step's number
is that count divided by the batch size, which is the step between the counts. 0.16.9
writes the loss one batch early (its first count is 0 where the others' is one batch).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from dsprof.errors import DsprofError
from dsprof.grammar import Grammar
from dsprof.schema import SCHEMA

_FILE: Final = re.compile(r"(?:^|[/\\])Train_Samples_(\w+)\.csv$")
_LINE: Final = re.compile(
    r"\s*(\d{1,18})\s*,\s*([-+]?(?:\d{1,60}(?:\.\d{0,60})?(?:[eE][-+]?\d{1,3})?|nan|inf))\s*$"
)
_TIMER: Final = "elapsed_time_ms_"
_NAMES: Final = {"train_loss": "loss"}
_FLAVOUR: Final = "zero"


@dataclass(frozen=True, slots=True)
class _Scalar:
    """One file: `samples` and `values` as written, `lines` in the file."""

    source: str
    raw: str
    samples: np.ndarray
    values: np.ndarray
    lines: np.ndarray


def is_scalar_file(name: str) -> bool:
    """Whether a path is one of the monitor's files."""
    return _FILE.search(name) is not None


def read_scalars(names: Sequence[str], grammar: Grammar, first_record: int) -> pa.Table:
    """The files as events, in order of step.

    Args:
        names: paths for which `is_scalar_file` holds.
        grammar: whose timer words name the timers.
        first_record: number of the first record.

    Raises:
        DsprofError: a file cannot be read.
    """
    scalars = [scalar for name in names if len((scalar := _read(name)).samples)]
    if not scalars:
        return SCHEMA.empty_table()
    batch = _batch_size(scalars)
    parts = [_columns(scalar, batch, scalars, grammar) for scalar in scalars]
    table = pa.concat_tables(map(pa.table, [*parts, *_settings(scalars[0], batch)]))
    table = table.append_column("record", pa.array(np.arange(len(table)) + first_record))
    for field in SCHEMA:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    table = table.select(SCHEMA.names).cast(SCHEMA)
    return table.sort_by([("segment", "ascending"), ("step", "ascending")])


def _read(name: str) -> _Scalar:
    match = _FILE.search(name)
    assert match is not None
    samples, values, lines = [], [], []
    try:
        text = Path(name).read_bytes().decode("utf-8", "replace").replace("\0", "")
    except OSError as error:
        raise DsprofError(f"cannot be read: {error.strerror or error}", name) from None
    whole = text[: text.rfind("\n") + 1]  # a crash may have cut the last number
    for number, line in enumerate(whole.split("\n"), 1):
        found = _LINE.match(line)
        if found is None:
            continue  # the header, or what a crash left
        samples.append(int(found[1]))
        values.append(float(found[2]))
        lines.append(number)
    return _Scalar(
        name, match[1], np.array(samples, np.int64), np.array(values), np.array(lines, np.int64)
    )


def _batch_size(scalars: Sequence[_Scalar]) -> int:
    """Samples of one optimizer step: what all distances between counts are multiples of."""
    distances = [np.abs(np.diff(scalar.samples)) for scalar in scalars]
    counts = [scalar.samples for scalar in scalars if scalar.raw != "train_loss"]
    whole = np.concatenate([*distances, *counts])
    size = int(np.gcd.reduce(whole)) if len(whole) else 0
    return size or 1


def _settings(scalar: _Scalar, batch: int) -> list[dict[str, object]]:
    """What the counts tell of the job; one count alone does not tell the batch size."""
    told: dict[str, tuple[float, str | None]] = {"framework": (float("nan"), "deepspeed")}
    if len(scalar.samples) > 1:
        told["train_batch_size"] = (float(batch), None)
    return [
        dict(
            sorted(
                {
                    "segment": [0],
                    "engine": pa.array([0], pa.int16()),
                    "step": pa.nulls(1, pa.int64()),
                    "steps": pa.nulls(1, pa.int32()),
                    "rank": pa.array([0], pa.int32()),
                    "raw": ["step"],
                    "source": [scalar.source],
                    "line": [int(scalar.lines[0])],
                    "pattern": ["csv_monitor.scalar"],
                    "kind": ["config"],
                    "name": [name],
                    "timers": pa.nulls(1, pa.string()),
                    "seconds": pa.nulls(1, pa.float64()),
                    "value": pa.array([value], pa.float64(), from_pandas=True),
                    "text": pa.array([text], pa.string()),
                }.items()
            )
        )
        for name, (value, text) in told.items()
    ]


def _columns(
    scalar: _Scalar, batch: int, scalars: Sequence[_Scalar], grammar: Grammar
) -> dict[str, object]:
    others = [other.samples[0] for other in scalars if other.raw != "train_loss"]
    early = scalar.raw == "train_loss" and (not others or scalar.samples[0] < min(others))
    size = len(scalar.samples)
    columns: dict[str, object] = {
        "segment": np.append(0, np.cumsum(np.diff(scalar.samples) <= 0)),
        "engine": np.zeros(size, np.int16),
        "step": scalar.samples // batch + int(early),
        "steps": np.ones(size, np.int32),
        "rank": np.zeros(size, np.int32),  # the monitor writes on rank 0 only
        "raw": [scalar.raw] * size,
        "source": [scalar.source] * size,
        "line": scalar.lines,
        "pattern": ["csv_monitor.scalar"] * size,
    }
    if scalar.raw.startswith(_TIMER):
        word = scalar.raw.removeprefix(_TIMER)
        columns |= {
            "kind": ["phase"] * size,
            "name": [grammar.timer_names.get(word, word)] * size,
            "timers": [_FLAVOUR] * size,
            "seconds": scalar.values / 1e3,
        }
    else:
        columns |= {
            "kind": ["metric"] * size,
            "name": [_NAMES.get(scalar.raw, scalar.raw)] * size,
            "timers": pa.nulls(size, pa.string()),
            "value": scalar.values,
        }
    columns["text"] = pa.nulls(size, pa.string())
    blank = pa.nulls(size, pa.float64())
    for measure in ("seconds", "value"):
        columns.setdefault(measure, blank)
    return dict(sorted(columns.items()))
