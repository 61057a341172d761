"""Sources without timers of their steps: what is missing, and how to get it."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from dsprof.analysis.breakdown import mean_of
from dsprof.events import Class, Kind, Severity
from dsprof.findings.advice import ask_for_timers, more_workers, record
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.over_time.lately import lately, rising
from dsprof.findings.proofs import average_proof, mark_proof
from dsprof.findings.thresholds import UNLIKE_BAR
from dsprof.findings.unknown.clocked_turns import clocked_turns
from dsprof.findings.unknown.percentages import percentages
from dsprof.findings.unknown.unread import some_unread
from dsprof.findings.unknown.whole_training import mean_so_far, mean_step
from dsprof.grammar import TimerFlavour
from dsprof.run.steps.bars import since_start
from dsprof.run.table import LONGEST, STEP, of_kind, positions, within
from dsprof.units import format_count, format_seconds, format_share

EVERY_PHASE: Final = "times every phase of every rank"
#: Share of a step that is not worth a number: the loop's clock has four decimals.
_HARDLY_ANY: Final = 0.001
#: What may be left of a time that is printed as 0 with three decimals, as the fewest are.
_ROUNDED: Final = 0.0005
_WORTH_SAYING: Final = 0.01  #: share of a step from which on that is told
#: By NVIDIA's data sheets, of the SXM models, without sparsity.
_PEAKS: Final = (
    "For comparison: the peak of a V100 is 125 TFLOP/s with 16-bit numbers, of an A100 312, of an "
    "H100 989"
)


def source_word(facts: Facts) -> str:
    return "recording" if facts.run.is_recording else "log"


def _has_none(facts: Facts) -> str:
    """That no timer is read; of the lines that are understood, where others look like metrics."""
    if some_unread(facts):
        return "the lines that are understood have no timers"
    return f"this {source_word(facts)} has no timers"


def _does_not_say(facts: Facts) -> str:
    if some_unread(facts):
        return "Nor do the lines that are understood say"
    return f"Nor does this {source_word(facts)} say"


def no_timers(facts: Facts, lacking: str = "") -> Finding:
    """A note that nothing divides a step, and how something would; `lacking`: why, if known."""
    seconds = facts.step_seconds
    line = facts.run.steps.iloc[-1]
    rate = mean_of(facts.steps, "tflops") if seconds else math.nan
    known = (
        (_utilisation(facts) or f"{_PEAKS}." if rate > 0 else "")
        if seconds
        else _mean_of_training(facts)
        or _by_rate(facts)
        or _by_turns(facts)
        or f"{_does_not_say(facts)} how long {_of_which(facts)} takes."
    )
    lacking = lacking or _lacking(facts)
    if lacking == _PLACELESS:
        known += " Its timer lines name no step; a longer part of the log may name them."
    if lacking == _OF_WARM_UP:
        known += " A longer part of the log may have timers of later steps."
    known += "" if _prints_timers(facts, lacking) else _for_timers(facts)[0]
    unlike = _unlike_the_bar(facts)
    return Finding(
        rule="unaccounted-time",
        severity=Severity.INFO,
        title=f"{_how_long(facts, rate, unlike)} is {_how_unknown(facts, lacking)}",
        summary=(_said_of_unlike(unlike) + known).strip(),
        evidence=average_proof(facts) if seconds else (mark_proof(facts, line),),
        advice=(
            *more_workers(facts),
            *_ask_for_timers(facts, lacking),
            *record(facts, EVERY_PHASE),
        ),
    )


def _utilisation(facts: Facts) -> str:
    """How much of their GPUs' peak these steps used, as lines state it; "" where none does."""
    told = of_kind(facts.run.told, Kind.METRIC, "mfu")
    used = told.merge(facts.steps[list(STEP)], on=list(STEP))["value"].dropna()
    return f"That is {used.mean():.3g} % of the GPUs' peak, as the log states (MFU)." * (
        len(used) > 0
    )


def _how_unknown(facts: Facts, lacking: str) -> str:
    """Why it is unknown, or what alone tells it."""
    own = percentages(facts.run.told) if lacking == _PLACELESS else ""
    return f"told by the log's own percentages alone: {own}" if own else f"unknown: {lacking}"


class Unlike(NamedTuple):
    """What the training's bar counts, where the few steps that it times by itself are unlike it."""

    timed: int
    counted: int
    seconds: float  # of a step, over all that are counted


def _unlike_the_bar(facts: Facts) -> Unlike | None:
    """Bars that stand close together time few steps, which may be none of the usual ones."""
    steps, seconds = facts.steps, facts.step_seconds
    timed = steps[steps["whole_seconds"].notna()]
    if not seconds or timed.empty or not timed["whole_from"].eq("bar").all():
        return None
    by_bar = since_start(within(timed.head(1), facts.run.told, "segment", "engine"))
    few, all_of_them = int(timed["covers"].sum()), int(timed["step"].max())
    if by_bar is None or by_bar * all_of_them < 2 * seconds * few:
        return None  # most of its time is seen, as where the other steps are of an earlier launch
    is_unlike = not 1 / UNLIKE_BAR <= seconds / by_bar <= UNLIKE_BAR
    return Unlike(few, all_of_them, by_bar) if is_unlike else None


def _said_of_unlike(unlike: Unlike | None) -> str:
    if unlike is None:
        return ""
    return (
        f"Its bar counts {format_seconds(unlike.seconds)} a step over the {unlike.counted:,} since "
        "it began, unless some of them are of an earlier launch: how long a usual step takes is "
        "unknown. "
    )


def _how_long(facts: Facts, rate: float, unlike: Unlike | None) -> str:
    """What is known of a step's length, and that more is asked for. `rate`: in TFLOP/s of a GPU."""
    seconds = facts.step_seconds
    if not seconds:
        told = facts.run.told
        mean = mean_step(told) or mean_so_far(told)
        if not mean and (turns := clocked_turns(told)):
            mean = turns.mean
        return f"{mean}; where that goes" if mean else "Where the time of a step goes"
    slower = lately(facts)
    if slower is not None:
        return f"{slower}; where that goes"
    if longer := rising(facts):
        return f"{longer}; where that goes"
    if unlike is not None:
        several = unlike.timed > 1
        those = f"{unlike.timed:,} steps that are timed" if several else "one step that is timed"
        return f"The {those} took {format_seconds(seconds)}{' each' * several}; where that goes"
    speed = f" ({format_count(rate)} TFLOP/s a GPU)" if rate > 0 else ""
    if _is_first_alone(facts):
        took = f"{format_seconds(seconds)}{speed}"
        alone = "timed" if len(facts.run.steps) > 1 else "shown"
        return f"The first step, the only one {alone}, took {took}; where that goes"
    return f"A step takes {format_seconds(seconds)}{speed}; where that goes"


def _is_first_alone(facts: Facts) -> bool:
    """Whether the only step that is timed is the first one, which also builds things. Of records
    that are counted, the first may be of any step."""
    steps = facts.steps
    first = len(steps) == 1 and bool(steps["step"].iloc[0] <= 1)
    return first and not facts.run.counted


def only_calls(facts: Facts) -> Finding:
    """A note, as in `no_timers`: timers that were not enabled cost nothing."""
    rest = facts.share(facts.seconds_of("other")) or 0.0
    return _one_kind_alone(
        facts,
        f"{format_share(rest)} of a step is outside the logged calls: {_has_none(facts)}",
        "Communication calls alone are timed; the rest of a step, above all computation, is not "
        "divided",
    )


def only_data(facts: Facts) -> Finding:
    """The same for a loop that only times waiting for its data loader."""
    waiting = facts.share(facts.seconds_of("data")) or 0.0
    that = " that is understood" * some_unread(facts)
    rounded = (facts.share(_ROUNDED) or 0.0) if waiting == 0 else 0.0
    said_of_data = "Hardly any" if waiting < _HARDLY_ANY else format_share(waiting)
    if rounded >= _WORTH_SAYING:
        said_of_data = f"At most {format_share(rounded)}"
    return _one_kind_alone(
        facts,
        f"{said_of_data} of a step is waiting for data; nothing else{that} is timed",
        f"Nothing{that} in this log divides the rest: forward, backward, optimizer and "
        "communication are all in it",
    )


def _one_kind_alone(facts: Facts, title: str, summary: str) -> Finding:
    """For a log that times one kind of activity and nothing else."""
    said, advice = _for_timers(facts)
    return Finding(
        rule="unaccounted-time",
        severity=Severity.INFO,
        title=title,
        summary=f"{summary} ({facts.windows}).{said}",
        evidence=average_proof(facts),
        advice=(*advice, *record(facts, EVERY_PHASE)),
    )


#: For timer lines without a step, for example if they precede the only line of a step.
_PLACELESS: Final = "its timer lines cannot be assigned to steps"
_OF_WARM_UP: Final = "its timers are of the launch's first row alone, a warm-up"
_IMPOSSIBLE: Final = "its timers read no possible durations"


def _prints_timers(facts: Facts, lacking: str) -> bool:
    return lacking in {_PLACELESS, _OF_WARM_UP, _IMPOSSIBLE} or _spoilt(facts) is not None


def _mean_of_training(facts: Facts) -> str:
    """The rate over all steps, if the last record of a training states one."""
    told = facts.run.told
    rates = told.loc[told["name"] == "train_steps_per_second", "value"].dropna()
    if rates.empty:
        single = "No single step has a time: the trainer states the mean since its start alone."
        return single if mean_so_far(told) else ""
    return (
        f"Over the whole training it states {rates.iloc[-1]:.3g} steps/s, but not how long any "
        "single step takes."
    )


#: Rates that belong to no single step: stated before the first line that numbers one, or a mean.
_RATES: Final = {"samples_per_second_mean": " in the mean so far", "samples_per_second": " once"}


def _by_rate(facts: Facts) -> str:
    """How long a step takes by a rate that is of no single step, of steps, or of samples where its
    batch is known."""
    told, batch = facts.run.told, facts.run.config.get("train_batch_size")
    often = told.loc[(told["name"] == "steps_per_second_mean") & (told["value"] > 0), "value"]
    if len(often):
        rate, takes = float(often.iloc[-1]), format_seconds(1 / often.iloc[-1])
        return (
            f"It states {rate:.3g} steps/s, a mean over its last ones: by that a step takes "
            f"about {takes}, but none is timed alone."
        )
    if not isinstance(batch, int | float) or not batch > 0:
        return ""
    for name, when in _RATES.items():
        rates = told.loc[(told["name"] == name) & (told["value"] > 0), "value"]
        if len(rates):
            rate, takes = rates.iloc[-1], format_seconds(batch / rates.iloc[-1])
            return (
                f"It states {format_count(rate)} samples/s{when}: by that a step, of "
                f"{format_count(batch)} samples, takes {takes}, but none is timed alone."
            )
    return ""


def _by_turns(facts: Facts) -> str:
    """That what its lines count was timed, and whether it became slower."""
    turns = clocked_turns(facts.run.told)
    return f"{turns.pace}By the time stamps of its lines{turns.unstated}." if turns else ""


def _of_which(facts: Facts) -> str:
    """Words for what is unknown: a progress bar still gives the time of all iterations so far, and
    of the last ones.
    """
    told = facts.run.told
    turns = told.loc[told["name"] == "bar_position", "value"]
    return "any single step" if turns.gt(0).any() else "a step"


#: Defect that makes all timers unusable → why.
_DEFECTS: Final = {
    "window-unknown": "its timers sum over an unknown number of steps",
    "timers-contradict": "its timers contradict each other",
    "cut-head": "the log begins within the only step whose timers it shows",
    "cut-short": "its timer lines lost their end",
    "last-interval-only": "its timers keep only the last interval",
    "last-micro-batch-alone": "it times the last micro-batch of a step alone",
}


_PRINTED = "prints forward, backward, reduction and optimizer times of each step."
_PRINTS_TIMERS = f" With wall_clock_breakdown DeepSpeed {_PRINTED}"
_MAY_PRINT_TIMERS = f" If DeepSpeed trains it, wall_clock_breakdown {_PRINTED}"


_IF_DEEPSPEED_TRAINS: Final = Advice(
    "wall_clock_breakdown", "", "true, if DeepSpeed trains it", "prints timers"
)
_PROFILED_BY_NEMO: Final = Advice(
    "NsysCallback (NeMo 1: nsys_profile)", "", "a few steps", "nsys then shows what a step does"
)


def _spoilt(facts: Facts) -> str | None:
    """Why the existing timers cannot be used; None if no reason is known."""
    met = set(facts.run.repairs["name"])
    return next((why for defect, why in _DEFECTS.items() if defect in met), None)


def _ask_for_timers(facts: Facts, lacking: str) -> tuple[Advice, ...]:
    if _prints_timers(facts, lacking):
        return ()
    return _for_timers(facts)[1]


def _for_timers(facts: Facts) -> tuple[str, tuple[Advice, ...]]:
    """What would make the source print timers, as a sentence and as advice."""
    if facts.is_nemo:
        return "", (_PROFILED_BY_NEMO,)
    if facts.run.is_recording or facts.is_torch_alone:
        return "", ()
    if facts.is_megatron_alone and facts.may_be_megatron_deepspeed:
        return _MAY_PRINT_TIMERS, (_IF_DEEPSPEED_TRAINS,)
    if facts.is_megatron_alone:
        why = "prints what Megatron's own timers measure"
        said = f" Megatron's --timing-log-level 2 {why}."
        return said, (Advice("--timing-log-level", "", "2", why),)
    said = _PRINTS_TIMERS if facts.shows_deepspeed else _MAY_PRINT_TIMERS
    return said, ask_for_timers(facts)


def _lacking(facts: Facts) -> str:
    """Why no timer of this log divides a step."""
    timed = facts.run.as_told
    timed = timed[timed["kind"] == Kind.PHASE]
    if len(timed) and not timed["seconds"].between(0.0, LONGEST).any():
        return _IMPOSSIBLE
    timed = timed[timed["seconds"].notna()]
    flavours = facts.run.grammar.timers.values()
    beside = [one.name for one in flavours if one.sums == "once" or _only_checkpoints(one)]
    of_steps = timed[~timed["timers"].isin(beside)]
    if timed.empty:
        return _has_none(facts)
    if of_steps.empty:
        return "its timers are of set-up and checkpoints, not of steps"
    if not of_steps["seconds"].gt(0).any():
        return "its timers of steps all read 0"
    return _spoilt(facts) or (_OF_WARM_UP if _of_warm_up(facts) else _PLACELESS)


def _of_warm_up(facts: Facts) -> bool:
    """Whether its timers are of the first step of the launch alone, which is left out."""
    timed = facts.run.phases[list(STEP)].drop_duplicates()
    left_out = facts.run.steps.drop(facts.steps.index)
    first = left_out[left_out["warm_up"].astype(bool)]
    return len(timed) > 0 and bool((positions(first, timed, *STEP) >= 0).all())


def _only_checkpoints(flavour: TimerFlavour) -> bool:
    return set(flavour.tree.values()) == {Class.CHECKPOINT}
