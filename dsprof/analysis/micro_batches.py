"""How many micro-batches an optimizer step has, where no setting is shown: by what the engine
prints of each, or counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsprof.events import Kind
from dsprof.run.table import among, of_kind, where

if TYPE_CHECKING:
    import pandas as pd

    from dsprof.run import Run

_ONE: Final = ["segment", "engine", "rank"]


def counted_micro_batches(run: Run) -> int | None:
    """Micro-batches of a step, by lines or counts; None if neither tells.

    One a step tells nothing: Megatron calls the engine's step() only behind the last of several.
    """
    many = timed_micro_batches(run) or _counted(run)
    return many if many and many > 1 else None


def timed_micro_batches(run: Run) -> int | None:
    """Timer lines of micro-batches in each step of a log that a timer line of all of it closes,
    where several steps have as many; None if they differ, or if there are no such lines.

    The first step of a launch is left out: the log may begin within it.
    """
    if (lines := _micro_lines(run)).empty:
        return None
    whole = [n for n, one in run.grammar.timers.items() if (one.sums, one.place) == ("step", "end")]
    each = lines.groupby([*_ONE, "step"], dropna=False).size().rename("many")
    closing = _lines(run, whole)[[*_ONE, "step"]].drop_duplicates()
    if closing.empty:
        return None
    counts = closing.merge(each.reset_index(), on=[*_ONE, "step"])
    begun = counts.sort_values("step").duplicated(_ONE)
    found = counts.loc[begun[begun].index, "many"]
    return int(found.iloc[0]) if len(found) > 1 and _alike(found) else None


def turns_timed(run: Run) -> int:
    """How many micro-batches have a timer line: of the process that prints most of them."""
    each = _micro_lines(run).groupby(_ONE, dropna=False).size()
    return int(each.max()) if len(each) else 0


def _counted(run: Run) -> int | None:
    """By how many micro-steps DeepSpeed's throughput timer counts on for each step that it counts:
    it begins both anew with a launch, and micro-steps with an epoch, too."""
    rows = of_kind(run.told, Kind.METRIC, "micro_step", "global_step", "epoch")
    rows = rows[rows["pattern"].astype("str").str.startswith("deepspeed.throughput")]
    if rows.empty:
        return None
    told = rows.pivot_table("value", [*_ONE[:2], "source", "record"], "name", observed=True)
    if not {"micro_step", "global_step", "epoch"} <= set(told.columns):
        return None
    apart = told.groupby([*_ONE[:2], "source", "epoch"])[["micro_step", "global_step"]].diff()
    found = (apart["micro_step"] / apart["global_step"]).dropna()
    whole = len(found) > 0 and _alike(found) and found.iloc[0] >= 1
    return int(found.iloc[0]) if whole and float(found.iloc[0]).is_integer() else None


def _alike(counts: pd.Series[float]) -> bool:
    return bool(counts.min() == counts.max())


def _micro_lines(run: Run) -> pd.DataFrame:
    return _lines(run, [name for name, one in run.grammar.timers.items() if one.sums == "micro"])


def _lines(run: Run, timers: list[str]) -> pd.DataFrame:
    """One row for each line of these timers."""
    timed = among(run.told["kind"], [Kind.PHASE]) & among(run.told["timers"], timers)
    return where(run.told, timed).drop_duplicates(["source", "record"])
