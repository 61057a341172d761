"""The figures of a run that both the terminal and the JSON document show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from dsprof.analysis.breakdown import breakdown_of, main_steps, regular_steps
from dsprof.text.words import number

if TYPE_CHECKING:
    from dsprof.run import Run


@dataclass(frozen=True, slots=True)
class Phase:
    """A timer of the mean step: seconds that its children do not explain."""

    name: str
    class_: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Overview:
    """Optimizer steps in figures; None where the source does not say.

    Means are over the launch and engine that took most time, its first row left out
    where there are enough: `averaged` rows of `rows` in all.
    """

    rows: int
    first: int | None
    last: int | None
    launches: int
    averaged: int
    seconds: float | None
    median: float | None
    p95: float | None
    classes: dict[str, float]  # seconds of the mean step
    phases: list[Phase]  # largest first
    communication_share: float | None
    bound: dict[str, int]  # rows held back by each cause
    loss: tuple[float, float] | None  # first and last
    samples_per_second: float | None
    tokens_per_second: float | None
    tflops: float | None
    skipped: int | None

    def largest_phase(self, class_: str) -> str:
        """The phase that takes most of a class; "" if it has none."""
        return next((p.name for p in self.phases if p.class_ == class_ and p.seconds > 0), "")


def overview(run: Run) -> Overview:
    steps = run.steps
    main = main_steps(steps)
    mean = breakdown_of(main, run.phases)
    seconds = regular_steps(steps)["seconds"]
    return Overview(
        rows=len(steps),
        first=_whole(steps["step"].min()),
        last=_whole(steps["step"].max()),
        launches=int(steps["segment"].nunique()),
        averaged=len(main),
        seconds=mean.seconds if mean else None,
        median=number(seconds.median()),
        p95=number(seconds.quantile(0.95)),
        classes=dict(mean.classes) if mean else {},
        phases=_phases(mean.phases) if mean else [],
        communication_share=number(main["communication_share"].mean()),
        bound={str(word): int(n) for word, n in steps["bound"].value_counts().items() if n},
        loss=_ends(steps["loss"]),
        samples_per_second=number(main["samples_per_second"].mean()),
        tokens_per_second=number(main["tokens_per_second"].mean()),
        tflops=number(main["tflops"].mean()),
        skipped=_skipped(steps),
    )


def _phases(table: pd.DataFrame) -> list[Phase]:
    return [
        Phase(str(name), str(class_), float(seconds))
        for name, class_, seconds in zip(table.index, table["class"], table["seconds"], strict=True)
    ]


def _whole(value: Any) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def _ends(values: pd.Series[Any]) -> tuple[float, float] | None:
    told = values.dropna()
    return (float(told.iloc[0]), float(told.iloc[-1])) if len(told) else None


def _skipped(steps: pd.DataFrame) -> int | None:
    """Skipped steps of all launches: each counts from its own start."""
    told = steps.dropna(subset="skipped")
    if told.empty:
        return None
    return int(told.groupby(["segment", "engine"])["skipped"].max().sum())
