"""The JSON document of a run: `schema` 1, described in docs/json.md."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

import dsprof
from dsprof.text.overview import Overview, overview
from dsprof.text.trust import by_weight

if TYPE_CHECKING:
    from dsprof.findings import Finding
    from dsprof.logs import Coverage
    from dsprof.run import Run

SCHEMA: Final = 1

_PROBLEMS: Final = 1000
_SHAPES: Final = 1000


def document(run: Run) -> dict[str, Any]:
    """What the summary says and more, as JSON types: seconds, bytes, null for unknown."""
    from dsprof.findings import abstentions_of

    findings = [finding(found) for found in run.findings]
    return {
        "schema": SCHEMA,
        "dsprof": dsprof.__version__,
        "meta": to_json(run.meta),
        "config": to_json(run.config),
        "verdict": findings[0] if findings else None,
        "findings": findings,
        "abstentions": [{"rule": rule, "why": why} for rule, why in abstentions_of(run)],
        "steps": _steps(overview(run)),
        "problems": _rows(by_weight(run.problems).head(_PROBLEMS)),
        "repairs": _rows(run.repairs),
        "coverage": None if run.coverage is None else _coverage(run.coverage),
    }


def to_json(value: Any) -> Any:
    """The same in JSON's own types; numbers that are none and missing cells become null."""
    if isinstance(value, Mapping):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(each) for each in value]
    return _cell(value.item() if isinstance(value, np.generic) else value)


def _cell(value: Any) -> str | float | bool | None:
    if isinstance(value, str | Enum | Path):
        return str(value)
    if value is None or pd.isna(value):
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bool | int):
        return value
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


def finding(found: Finding) -> dict[str, Any]:
    """A finding in JSON's own types."""
    said = {name: getattr(found, name) for name in found.__dataclass_fields__}
    said["evidence"] = [proof._asdict() for proof in found.evidence]
    said["advice"] = [advice._asdict() for advice in found.advice]
    converted: dict[str, Any] = to_json(said)
    return converted


def _steps(seen: Overview) -> dict[str, Any]:
    """The figures of `Overview`, `class_` under its own name."""
    said = asdict(seen)
    said["phases"] = [
        {"name": phase.name, "class": phase.class_, "seconds": phase.seconds}
        for phase in seen.phases
    ]
    converted: dict[str, Any] = to_json(said)
    return converted


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [to_json(row) for row in frame.to_dict("records")]


def _coverage(coverage: Coverage) -> dict[str, Any]:
    return {
        "lines": coverage.lines,
        "bytes": coverage.bytes,
        "metric_lines": coverage.metric_lines,
        "read_lines": coverage.read_lines,
        "sampled": coverage.sampled,
        "patterns": dict(coverage.patterns),
        "shapes": [
            {"count": count, "shape": shape, "source": source, "line": line, "example": example}
            for count, shape, source, line, example in coverage.shapes[:_SHAPES]
        ],
    }
