"""The rule about steps that are skipped because fp16 gradients overflow, and its advice."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import pandas as pd

from dsprof.events import Severity
from dsprof.findings.advice import bf16, change, clipping, set_to
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.numerics.counted_skips import MOST_AT_START, Skips, counted_skips
from dsprof.findings.numerics.skips import (
    cut_off,
    halvings_at_start,
    of_how_many,
    only_tries,
    overflows,
    scale_left,
    scale_tried,
    skips_of,
)
from dsprof.findings.numerics.standstill import standstill
from dsprof.findings.thresholds import (
    OVERFLOW_HELD,
    OVERFLOW_SCALE,
    OVERFLOW_STEPS,
)
from dsprof.findings.versions import predates
from dsprof.units import format_seconds, format_share


def overflow_streak(facts: Facts) -> list[Finding] | str:
    """Many steps are skipped because fp16 gradients overflow.

    Gain: up to the time of the skipped steps, if it goes on; what is over cannot be saved.
    """
    skips = counted_skips(facts)
    if skips is None:
        return _without_steps(facts)
    skips = replace(skips, sought=_sought(facts, skips))
    if not (skips.many or skips.endless):
        return []
    found = _found_scale(facts, skips)
    apart = skips.engine is not None and len(facts.run.steps["engine"].unique()) > 1
    engine = skips.engine if apart else None
    step, floor = Facts(facts.run, engine).step_seconds, _at_floor(facts, engine)
    spent = floor is not None or _is_spent(skips)
    seconds = skips.share * step if step and skips.lasts else None
    whose = f" of engine {engine}" if apart else ""
    if found is not None:
        return [_of_search(facts, skips, whose, found)]
    last = f", the last {skips.streak:,} all" * (skips.endless and skips.streak < skips.total)
    return [
        Finding(
            rule="overflow-streak",
            severity=Severity.CRITICAL if skips.often else Severity.WARNING,
            title=f"{skips.total:,} of {skips.of:,} steps{whose} were skipped{last}: "
            f"gradients overflowed{_even(floor)}",
            summary=f"{_part(skips)} of the steps{whose} so far taught the model "
            f"nothing{_of_each_step(seconds)}. {_since_then(skips)}"
            f"{_no_scale(facts, floor, engine)}"
            f"{_SPENT * (spent and floor is None)}"
            f"{_near_floor(facts, engine) if skips.lasts and not spent else ''}"
            f"{_of_tries(facts, engine) if skips.lasts and not spent else ''}",
            share=skips.share if seconds else None,
            seconds_per_step=seconds,
            engine=engine,
            evidence=skips.evidence,
            advice=_broken(facts, floor)
            if spent
            else _scale_advice(
                facts, skips.at_start, skips.total, engine, all_of_them=skips.total == skips.of
            ),
            gain=(0.0, seconds) if seconds and skips.often and not spent else None,
            confidence="high" if skips.lasts or skips.last is not None else "medium",
        )
    ]


#: Megatron's first loss scale, the highest that is usual, and the first overflow of a scaler, that
#: with the usual hysteresis of 2 lowers nothing; as powers of 2 and skips.
_HIGHEST: Final = 32
_HELD: Final = 1


def _found_scale(facts: Facts, skips: Skips) -> float | None:
    """The loss scale at the end, if the skips are no more than a scaler needs that begins as high
    as scalers do and falls to there, where that is no lower than others begin, or holds; else
    None."""
    told = _scales(facts, skips.engine)
    if told.empty or skips.at_start is False or skips.total == skips.of + skips.uncounted:
        return None
    scale, power = float(told.iloc[-1]), set_to(facts, "fp16.initial_scale_power")
    highest = float(power) if isinstance(power, int | float) else _HIGHEST
    if not (OVERFLOW_HELD if skips.last is not None else OVERFLOW_SCALE) <= scale < math.inf:
        return None
    return scale if skips.total <= highest - math.log2(scale) + _HELD else None


def _of_search(facts: Facts, skips: Skips, whose: str, scale: float) -> Finding:
    """That a scaler looked for its first scale, which is as it should be."""
    return Finding(
        rule="overflow-streak",
        severity=Severity.INFO,
        title=f"{skips.total:,} of {skips.of:,} steps{whose} were skipped: as many as the loss "
        f"scaler may need to come down to its scale, {scale:,.0f}",
        summary="A scaler begins high, at up to 2^32, and halves its scale with each skip until "
        "gradients fit. That is usual for the first steps of a training, and these skips are no "
        "more than it takes.",
        engine=skips.engine if whose else None,
        evidence=skips.evidence,
        advice=_scale_advice(facts, skips.at_start, skips.total, skips.engine if whose else None),
        confidence="high" if skips.at_start else "medium",
    )


#: A share that would read as all.
_NEARLY_ALL: Final = 0.995


def _part(skips: Skips) -> str:
    """Few that went well are told as such: their share of all would read as none."""
    if _NEARLY_ALL < skips.share < 1:
        return f"All but {skips.of - skips.total:,}"
    return format_share(skips.share)


def _of_each_step(seconds: float | None) -> str:
    return f", {format_seconds(seconds)} of each step's time on average" if seconds else ""


def _sought(facts: Facts, skips: Skips) -> float | None:
    """The loss scale where the scaler, as far as is printed, is still looking for the first one
    that holds, as it does for its first steps; None where it is not, or no scale is told."""
    told = _scales(facts, skips.engine)
    begun = skips.total == skips.of + skips.uncounted
    if not begun or told.empty or told.iloc[-1] < OVERFLOW_SCALE:
        return None
    return float(told.iloc[-1])


def _scales(facts: Facts, engine: int | None) -> pd.Series[float]:
    """The loss scales that steps tell, of all engines or of one."""
    steps = facts.run.steps
    return (steps if engine is None else steps[steps["engine"] == engine])["loss_scale"].dropna()


def _since_then(skips: Skips) -> str:
    """Whether it goes on, as far as the printed steps tell."""
    if skips.sought is not None:
        return (
            "None has succeeded yet: the loss scaler begins high, halves its scale with each skip, "
            f"and was still at {skips.sought:,.0f} at the end. Whether it goes on is unknown."
        )
    if skips.endless:
        return f"The last {skips.streak:,} steps were all skipped: the model no longer learns."
    if skips.recent:
        return _recently(skips)
    if skips.uncounted:
        return f"How many of the {skips.uncounted:,} steps since then were skipped is not told."
    if skips.last is None:
        return "Whether it goes on is unknown, hence medium confidence: no later step is printed."
    return f"No more since step {skips.last:,}: the loss scaler has found its scale."


def _recently(skips: Skips) -> str:
    if skips.recent == skips.recent_of == 1:
        return "The last of them was skipped, too: it goes on."
    part = f"{skips.recent:,} of the last {skips.recent_of:,} were skipped"
    return f"At least {part}: it goes on." if skips.at_least else f"{part} too: it goes on."


def _without_steps(facts: Facts) -> list[Finding] | str:
    """Overflow lines of a log that numbers no step, or few: how many, but not of how many."""
    lines = overflows(facts.run)
    if lines.empty:
        return standstill(facts) or "no line counts skipped steps"
    cut, floor = cut_off(facts.run, lines), _at_floor(facts)
    total = skips_of(lines) + cut
    if total < OVERFLOW_STEPS and floor is None:
        return []
    were = "steps were" if total > 1 else "step was"
    more = floor is not None and floor < 1  # each skip halves it: far more came before
    least = "At least " * bool(cut or more)
    ends = lines.iloc[[0, -1]]
    return [
        Finding(
            rule="overflow-streak",
            severity=Severity.WARNING,
            title=f"{least}{total:,} {were} skipped: gradients overflowed{_even(floor)}",
            summary=(
                "Each skip halves the scale: more were skipped than are shown."
                if more
                else of_how_many(facts.run, total)
            )
            + (
                f"{_no_scale(facts, floor)} Medium confidence: the source does not say whether it "
                "goes on."
                if floor is not None
                else _of_tries(facts, None) or f"{_near_floor(facts)}{_FEW_ARE_NORMAL}"
            ),
            evidence=tuple(
                row_evidence(row, str(row["text"]) if pd.notna(row["text"]) else "overflow")
                for _, row in ends.iterrows()
            ),
            advice=_broken(facts, floor)
            if floor is not None
            else _scale_advice(facts, _could_be_start(facts, lines, total), total),
            confidence="medium",
        )
    ]


_FEW_ARE_NORMAL: Final = (
    " Medium confidence: a few skips at the start are normal, many in a row are not."
)


def _even(floor: float | None) -> str:
    """A scale below 1 is printed as 0 where it is printed as a whole number."""
    if floor == 0:
        return " even at a loss scale below 1"
    return "" if floor is None else f" even at loss scale {floor:.3g}"


def _no_scale(facts: Facts, floor: float | None, engine: int | None = None) -> str:
    """Where it may fall below 1, as DeepSpeed's in 2021 and apex's, it falls on and on."""
    if floor is None:
        return ""
    left = scale_left(facts.run, engine)
    falls = floor < 1 or (left is not None and left < 1)
    why = "Loss scales below 1 enlarge nothing" if falls else "The scale cannot go lower"
    return f" {why}: a different initial scale would not help."


def _at_floor(facts: Facts, engine: int | None = None) -> float | None:
    """The loss scale of the last overflow that tells it, if 1 or below: nothing was scaled."""
    scale = scale_tried(facts.run, engine)
    return scale if scale is not None and scale <= 1 else None


#: A scale from which few overflows more are enough for the end.
_LOW: Final = 8


def _near_floor(facts: Facts, engine: int | None = None) -> str:
    """That DeepSpeed's dynamic scaler of ZeRO, since 0.6.5, raises an error where it cannot lower
    its scale any more. Source: `DynamicLossScaler.update_scale` of
    deepspeed/runtime/fp16/loss_scaler.py, with `min_loss_scale` at its default, 1."""
    left = scale_left(facts.run, engine)
    raises = facts.shows_deepspeed and not predates(facts, "0.6.5")
    if left is None or not (raises and 1 <= left <= _LOW):
        return ""
    return (
        f" The last of them left a loss scale of {left:.3g}: DeepSpeed ends a job whose gradients "
        "overflow at 1, with ZeRO."
    )


_SPENT: Final = (
    " So many skips leave a scaler at its minimum, unless the scale is fixed: a different initial "
    "scale would not help."
)
_SKIPS_PER_SUCCESS: Final = 4  #: the most: a scale grows once in a window, and has hysteresis


def _is_spent(skips: Skips) -> bool:
    """Whether far more steps were skipped than the scale can have had halvings, which those that
    succeeded may have made it grow for."""
    return skips.total - MOST_AT_START > _SKIPS_PER_SUCCESS * (skips.of - skips.total)


def _broken(facts: Facts, floor: float | None) -> tuple[Advice, ...]:
    """Gradients that are not finite although nothing scales them, or as little as can be."""
    at = "at the least loss scale" if floor is None else "at loss scale 1"
    why = f"gradients are not finite even {at}: find the first inf or nan"
    return (
        Advice("model and data", "", "check both", why),
        *bf16(facts, "if fp16's range is too small for this model: that of fp32"),
    )


def _could_be_start(facts: Facts, lines: pd.DataFrame, total: int) -> bool | None:
    """False where a numbered one of the skips comes later than skips of the start can, or all but
    the first are of scales that had grown."""
    grown = only_tries(facts.run) and halvings_at_start(facts.run)[0] <= 1
    return False if grown or lines["step"].gt(total).any() else None


def _scale_advice(
    facts: Facts,
    at_start: bool | None,
    skips: int,
    engine: int | None = None,
    *,
    all_of_them: bool = False,
) -> tuple[Advice, ...]:
    other = bf16(facts, "bf16 needs no loss scale and skips nothing")
    if at_start is False or skips > MOST_AT_START:
        tries = only_tries(facts.run, engine)
        return (*(_seldom_tries(facts) if tries else _look_at_training(facts)), *other)
    scale = _scales(facts, engine)
    known = at_start and len(scale) and 1 <= scale.iloc[-1] < math.inf
    why = "each skip at the start only halves the scale once"
    if all_of_them:
        to = f"lower by {_halvings(facts, skips, engine):,} or more"
        why += ", and none has been enough yet"
    elif known:
        to = str(int(math.log2(scale.iloc[-1])))
    else:
        to = f"lower by up to {_halvings(facts, skips, engine):,}"
    if not at_start and not all_of_them:
        why = f"by as many as were at the start, which the log does not show: {why}"
    return (
        *change(facts, "fp16.initial_scale_power", to, why),
        *other,
    )


def _halvings(facts: Facts, skips: int, engine: int | None) -> int:
    """How many of the skips may have halved the scale at the start: not those that only used up
    hysteresis, nor those of a scale that had grown."""
    lowered, others = halvings_at_start(facts.run, engine)
    return max(1, lowered, skips - others)


_TRIED: Final = (
    " Since the scale first grew, only scales that had just grown overflowed: the scaler tries "
    "them out, and those that held before still hold."
)


def _of_tries(facts: Facts, engine: int | None) -> str:
    return _TRIED if only_tries(facts.run, engine) else ""


def _seldom_tries(facts: Facts) -> tuple[Advice, ...]:
    """Source: fp16.loss_scale_window of DeepSpeed, `_WINDOW` unless it is set."""
    if set_to(facts, "fp16.loss_scale_window") is None:
        return ()
    why = "the scale doubles after so many steps without an overflow, and each try costs skips"
    return change(facts, "fp16.loss_scale_window", _WINDOW, why, least=True)


_WINDOW: Final = "1000"


def _look_at_training(facts: Facts) -> tuple[Advice, ...]:
    """Skips of a scale that had held: no other scale at the start would spare them."""
    why = "gradients grew after a scale that had been stable: look at the loss just before"
    return (
        Advice("learning rate, warm-up", "", "lower, longer", why),
        *clipping(facts, "keeps a single batch from throwing it off"),
    )
