"""Skipped steps, as lines tell of single ones, and of how many steps these are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.run.steps.bars import steps_meant
from dsprof.run.table import of_kind
from dsprof.units import format_share

if TYPE_CHECKING:
    from dsprof.run import Run

#: Ranks tell of the same skip within so much time.
_ONE_MOMENT: Final = pd.Timedelta(1, "s")
_SCALE: Final = r"(\d{1,20}(?:\.\d{0,20})?(?:e[-+]?\d{1,3})?)"
#: The loss scale at which an overflow line says that gradients overflowed.
ATTEMPTED: Final = rf"Attempted loss scale: {_SCALE}(?:,|$)"
_LOWERED: Final = re.compile(rf"{ATTEMPTED} reducing to {_SCALE}")
_HELD: Final = re.compile(rf"{ATTEMPTED} but hysteresis")
#: As apex says it, which does not tell the scale before.
_HALVED: Final = re.compile(rf"reducing loss scale to {_SCALE}")
_ITERATION: Final = re.compile(r"Grad overflow on iteration:? (\d{1,12})")


def overflows(run: Run, engine: int | None = None) -> pd.DataFrame:
    """The lines that tell of single overflows, of all engines or of one, each once: MS-AMP's
    optimizer says again what the loss scaler has just said."""
    lines = of_kind(run.told, Kind.METRIC, "overflow")
    lines = lines if engine is None else lines[lines["engine"] == engine]
    return lines[~_said_again(lines)] if len(lines) else lines


def halvings_at_start(run: Run, engine: int | None = None) -> tuple[int, int]:
    """How many overflow lines tell that they lowered a scale that had never grown, and how many
    others say that theirs was held by hysteresis, or had grown; of the rank that tells the most."""
    scales = _of_one_rank(overflows(run, engine))
    grown = scales["attempted"].gt(scales["left"].shift()).cummax()
    lowered = scales["left"].lt(scales["attempted"]) & ~grown
    return int(lowered.sum()), int((~lowered).sum())


def only_tries(run: Run, engine: int | None = None) -> bool:
    """Whether all skips since the scale first grew are of scales that had just grown: scales that
    held before still do. Of the rank that tells the most of them."""
    scales = _of_one_rank(overflows(run, engine))
    tried, held, grew = False, False, False
    last = np.inf
    for attempted, left in scales.itertuples(index=False):
        grew = grew or attempted > last
        tried = attempted > last or (tried and held and attempted == last)
        if grew and not tried:
            return False
        held, last = left == attempted, left
    return grew


def scale_left(run: Run, engine: int | None = None) -> float | None:
    """The loss scale that the last overflow left, if its line tells it."""
    left = _scales(overflows(run, engine).tail(1))["left"]
    return float(left.iloc[0]) if left.notna().any() else None


def scale_tried(run: Run, engine: int | None = None) -> float | None:
    """The loss scale of the last overflow that tells it."""
    lines = overflows(run, engine)
    told = lines["text"].astype("string").str.extract(ATTEMPTED)[0].astype("float64")
    told = told.fillna(_scales(lines)["attempted"]).dropna()
    return float(told.iloc[-1]) if len(told) else None


def _of_one_rank(lines: pd.DataFrame) -> pd.DataFrame:
    """The scales that lines of the rank with most of them attempted and left."""
    if lines.empty:
        return _scales(lines)
    rank = lines["rank"].fillna(-1)
    scales = _scales(lines[rank == rank.mode().iloc[0]]).dropna()
    lowered = scales["left"].lt(scales["attempted"])
    return scales[~(scales.eq(scales.shift()).all(axis=1) & lowered)]  # said by another rank


def _scales(lines: pd.DataFrame) -> pd.DataFrame:
    """The scale that an overflow line attempted and the one that it left, where it tells both."""
    texts = lines["text"].astype("string")
    scales = texts.str.extract(_LOWERED).astype("float64").set_axis(["attempted", "left"], axis=1)
    held = texts.str.extract(_HELD)[0].astype("float64")
    halved = texts.str.extract(_HALVED)[0].astype("float64")
    scales = scales.fillna({"attempted": held, "left": held})
    return scales.fillna({"attempted": 2 * halved, "left": halved})


def _said_again(lines: pd.DataFrame) -> pd.Series[bool]:
    """Lines right behind one of the same process that tells of the same scales. One that is lowered
    is so once; one that hysteresis holds is told with its name once."""
    scales = _scales(lines)
    by = [lines[name] for name in ("source", "segment", "engine")] + [lines["rank"].fillna(-1)]
    before = scales.groupby(by, observed=True).shift()
    next_line = lines["line"].groupby(by, observed=True).diff().eq(1)
    held = lines["text"].astype("string").str.extract(_HELD)[0].notna()
    named = held.groupby(by, observed=True).shift(fill_value=False) & ~held
    same = scales.eq(before).all(axis=1)
    return next_line & same & (scales["left"].lt(scales["attempted"]) | named)


def told_skips(run: Run) -> int:
    """Skipped steps by the lines that tell of single overflows."""
    lines = overflows(run)
    return skips_of(lines) + cut_off(run, lines) if len(lines) else 0


def told_since(run: Run) -> int:
    """Skipped steps that lines tell of behind the last one that counts them; ranks may tell late
    of a step in front of it."""
    counter = of_kind(run.told, Kind.METRIC, "skipped").tail(1)
    lines = overflows(run).merge(counter[["source", "segment", "engine"]])
    if lines.empty:
        return 0
    before = lines[lines["line"] <= counter["line"].iloc[0]]
    return max(0, skips_of(lines) - (skips_of(before) if len(before) else 0))


def skips_of(lines: pd.DataFrame) -> int:
    """Skips told by overflow lines: each rank prints its own, fused optimizers two for a skip.

    Lines without a rank are one skip where they name the same iteration, or the same moment: ranks
    say some milliseconds apart that the same scale is lowered, which is lowered once.
    """
    lines = lines.assign(counts=lines["text"].astype("string").str.startswith("Grad overflow on"))
    lines["counts"] = lines["counts"].fillna(False).astype(bool)
    again = lines.duplicated(["segment", "engine", "text", "at"]) | _said_at_once(lines)
    again = again.where(~lines["counts"], lines.duplicated(["segment", "engine", "text"]))
    known = lines["counts"] | lines["at"].notna()
    apart = lines[lines["rank"].notna() | ~known | ~again]
    return int(apart.groupby([apart["rank"].fillna(-1), "counts"]).size().max())


def _said_at_once(lines: pd.DataFrame) -> pd.Series[bool]:
    """Lines of a scale that is lowered as the same line right before them says."""
    scales = lines["text"].astype("string").str.extract(_LOWERED).astype("float64")
    same = [lines[name] for name in ("segment", "engine", "text")]
    passed = lines["at"].groupby(same, observed=True).diff()
    return passed.lt(_ONE_MOMENT) & scales[0].gt(scales[1])


def cut_off(run: Run, lines: pd.DataFrame) -> int:
    """Whether the source begins behind the line of an overflow: with the next one of the fused
    optimizers, which puts the scale at 1, lower than which it never goes."""
    scales = of_kind(run.told, Kind.METRIC, "loss_scale")
    scales = scales[scales["pattern"].eq("deepspeed.loss_scale_change")]
    if scales.empty or not scales["value"].iloc[0] <= 1:
        return 0
    first, over = scales.iloc[0], lines.iloc[0]
    passed = lines["at"].min() - first["at"]
    apart = pd.notna(passed) and passed > _ONE_MOMENT
    return int(apart and first["source"] == over["source"] and first["line"] < over["line"])


def of_how_many(run: Run, skipped: int) -> str:
    """Of how many steps these are, where no line numbers one: by the bar of the training, else by
    the optimizer, which counts from 0 on up to the last one that it skipped."""
    bar, count = _steps_of_bar(run), _steps_of_optimizer(run)
    if bar is not None and bar >= skipped:
        return (
            f"That is {format_share(skipped / bar)} of the {bar:,} steps that the training's "
            "bar counts."
        )
    if count is not None and count >= skipped:
        return (
            f"That is {format_share(skipped / count)} of its first {count:,} steps, by the "
            "optimizer's count."
        )
    return "This source does not say of how many."


def _steps_of_bar(run: Run) -> int | None:
    bars = of_kind(run.told, Kind.METRIC, "bar_position", "bar_total")
    if bars.empty:
        return None
    said = bars.pivot_table("value", ["segment", "source", "record"], "name", observed=True)
    said = said[said["bar_total"].isin(steps_meant(run.told))]
    counted = said["bar_position"].groupby("source").max()
    return int(counted.iloc[0]) if len(counted) == 1 else None


def _steps_of_optimizer(run: Run) -> int | None:
    texts = overflows(run)["text"].astype("string")
    counted = texts.str.extract(_ITERATION)[0].dropna().astype("int64")
    return int(counted.max()) + 1 if len(counted) else None
