"""Sources without steps: what they say of speed nevertheless, and how to get steps."""

from __future__ import annotations

import math
from typing import Final

import pandas as pd

from dsprof.events import Kind, Severity
from dsprof.findings.advice import ask_for_timers, change, if_it_trains, more_workers, record
from dsprof.findings.evidence import whole
from dsprof.findings.facts import Facts
from dsprof.findings.failures.absent import OF_LOCK
from dsprof.findings.failures.ends import first_failure
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.unknown.clocked_turns import clocked_turns
from dsprof.findings.unknown.last_bar import bar, unmoved
from dsprof.findings.unknown.percentages import (
    counts_communication,
    percentages,
    said_of_percentages,
)
from dsprof.findings.unknown.unread import read_them, said_of_unread
from dsprof.findings.unknown.whole_training import mean_step
from dsprof.findings.versions import is_known, predates
from dsprof.run.defects.misfits import micro_batch
from dsprof.run.steps.bars import steps_meant
from dsprof.run.table import of_kind
from dsprof.units import format_count, format_seconds, format_share

_OF_ONE: Final = "rank_samples_per_second"
_RATES: Final = {
    "samples_per_second": "a rate",
    "samples_per_second_mean": "a mean rate",
    _OF_ONE: "a rate of one rank",
}
#: What the flops profiler reports about a step, in its order.
_PROFILED: Final = {
    "profiled_forward_seconds": "forward",
    "profiled_backward_seconds": "backward",
    "profiled_step_seconds": "optimizer",
    "profiled_iteration_seconds": "in all",
}
#: The advised steps_per_print; sources that print at least this often get no advice.
_EVERY: Final = 10
_OF_STACKS: Final = Advice(
    "py-spy dump --pid", "", "of each rank, if it stays there", "shows where each of them stands"
)
_BEHIND: Final = 20  #: so many lines of other things may follow the last of a set-up
_SETUP_ALONE: Final = (
    "This source shows the job's set-up alone: training had not begun, prints no steps, or hangs"
)
_OF_SILENCE: Final = Advice(
    "py-spy dump --pid", "", "of each rank, if it hangs", "shows where each of them stands"
)
_OF_VERL: Final = "verl prints its turns, and what their parts take, only if trainer.logger says so"
_AT_ITS_END: Final = "What the parts of a turn took stands at the end of its line"
_CUT_TURN: Final = "The line of turn {:,} breaks off before it tells how long the turn took"
_WHOEVER_TRAINS: Final = "times every phase of every rank, whatever trains it"
_NO_STEPS_RECORDED: Final = Finding(
    rule="unaccounted-time",
    severity=Severity.INFO,
    title="This recording shows no optimizer step: nothing can be said about speed",
    summary="It was stopped before the first step ended, or dsprof.attach neither found nor was "
    "given the optimizer that steps. dsprof attach finds a model without an engine when its "
    "optimizer first steps, and so records it from the second step on.",
)


def no_steps(facts: Facts) -> list[Finding] | str:
    """A note on what is stated without steps, or why none is needed: the run failed before."""
    if first_failure(facts.run) is not None:
        return "the source shows no optimizer step, only how the run failed"
    if facts.run.is_recording:
        return [_NO_STEPS_RECORDED]
    events = facts.run.told
    said, timed = _said_of_speed(facts), _has_timers(facts)
    clocked = timed or _is_clocked(events)
    mean = mean_step(events)
    profiled = None if mean else _slow_optimizer(events)
    turns = clocked_turns(events)
    shares = percentages(events) if timed else ""
    left = "only what is stated" if said or shares else "nothing"
    loads = _loads_extension(facts)
    return [
        Finding(
            rule="unaccounted-time",
            severity=Severity.INFO,
            title=(f"{mean}; none is printed" if mean else None)
            or profiled
            or (counts_communication(events) if shares else None)
            or (f"{turns.mean}{turns.unstated}" if turns else None)
            or _mean_micro_batch(facts)
            or (_CUT_TURN.format(turn) if (turn := _cut_turn(facts)) else None)
            or (_SETUP_ALONE if _is_setup_alone(facts) else None)
            or f"{_shown(facts)}: {_stand_of_bar(facts) or f'{left} can be said about speed'}",
            summary=said_of_unread(facts)
            + said
            + (turns.pace if turns else "")
            + (_of_parts(facts) if timed else "")
            + _why_none(facts)
            + (
                "."
                if clocked or facts.is_megatron_alone or facts.is_torch_alone
                else f"; timers {'' if facts.shows_deepspeed else 'of DeepSpeed '}need "
                "wall_clock_breakdown."
            )
            + " Low confidence: one step only." * bool(profiled),
            advice=(
                *read_them(facts),
                *((_OF_STACKS,) if _may_hang(facts) else ()),
                *((OF_LOCK, _OF_SILENCE) if loads else ()),
                *more_workers(facts),
                *(() if _shows_trainer(facts) else record(facts, _WHOEVER_TRAINS)),
                *_print_steps(facts),
                *_log_level(facts),
                *(() if clocked else ask_for_timers(facts)),
                *((_OF_SILENCE,) if _is_setup_alone(facts) and not loads else ()),
            ),
            confidence="low" if profiled else "high",
        )
    ]


def _shown(facts: Facts) -> str:
    if _bars_of_steps(facts):
        return "Nothing but a progress bar shows optimizer steps"
    return "No line that is understood shows an optimizer step"


def _may_hang(facts: Facts) -> bool:
    """Whether no bar of the source has moved, and nothing says that a training was over."""
    over = facts.run.told["name"].eq("train_runtime").any()
    return bool(unmoved(facts.run)) and not over and not _cut_turn(facts)


def _is_setup_alone(facts: Facts) -> bool:
    """Whether nothing of a training is told: settings, and how long operators took to load, up to
    the end of the source. What is not understood behind them may be of a training."""
    told, read = facts.run.told, facts.run.coverage
    if not (told["kind"].eq(Kind.CONFIG) | told["name"].eq("op_load")).all():
        return False
    if read is None or len(told["source"].unique()) != 1:
        return False
    last = told["line"].max()
    return bool(
        read.lines - last <= _BEHIND and all(line < last for _, _, _, line, _ in read.shapes)
    )


def _loads_extension(facts: Facts) -> bool:
    """Whether the source ends where ranks load an extension, or wait for one that compiles it."""
    return _is_setup_alone(facts) and facts.run.told["name"].iloc[-1] == "extension_begun"


def _mean_micro_batch(facts: Facts) -> str | None:
    """How long a micro-batch takes, where timers are of nothing else."""
    run = facts.run
    mean = micro_batch(run.told, run.phases, run.grammar.timers)
    if mean is None:
        return None
    return (
        f"A micro-batch takes {format_seconds(mean.seconds)}, its longest part {mean.longest}; no "
        "line shows where a step ends"
    )


def _stand_of_bar(facts: Facts) -> str | None:
    """How far the source's last bar came; None where it has none."""
    stands = f"{'it' if _bars_of_steps(facts) else 'its progress bar'} stands at"
    if total := unmoved(facts.run):
        return f"{stands} 0 of {total:,}"
    last = bar(facts.run)
    if last is None:
        return None
    of = f" of {last.total:,}" if last.total else ""
    return f"{stands} {last.position:,}{of} after {format_seconds(last.seconds)}"


def _why_none(facts: Facts) -> str:
    """Why no step was printed, as far as the settings and version of DeepSpeed tell, or those of
    Megatron.
    """
    if facts.is_torch_alone:
        of_verl = _AT_ITS_END if _cut_turn(facts) else _OF_VERL
        return of_verl if _is_verl(facts) else "No line of it numbers a step"
    if facts.is_megatron_alone:
        return (
            "Megatron prints one line for every --log-interval steps, 100 unless it is set, when "
            "the last of them is done"
        )
    if _is_trainer(facts):
        return "The Trainer prints a record every logging_steps steps, 500 unless it is set"
    every = facts.setting("steps_per_print") or facts.run.config.get("steps_per_print")
    if every == "inf" or isinstance(every, int | float):
        often = "no step" if isinstance(every, str) else f"a step every {format_count(every)}"
        return f"DeepSpeed prints {often} (steps_per_print{': inf' * isinstance(every, str)})"
    throughput = _throughput_every(facts)
    if throughput is not None:
        return f"Throughput is printed every {throughput:,} micro-steps, but no line numbers a step"
    return _why_none_of_version(facts)


def _why_none_of_version(facts: Facts) -> str:
    if predates(facts, "0.15.2"):
        which = "this version" if facts.run.meta.get("version_range") else "that time"
        return f"DeepSpeed of {which} prints every tenth step unless steps_per_print is set"
    if not is_known(facts, lambda first, _: first >= (0, 15, 2)):
        which = (
            "DeepSpeed, whose version is not known,"
            if facts.shows_deepspeed
            else "Nothing read in it shows DeepSpeed, which"
        )
        return (
            f"{which} prints every tenth step unless steps_per_print is set, from 0.15.2 on only "
            "where it is set"
        )
    return (
        "DeepSpeed 0.15.2 and later prints steps only with steps_per_print set, 0.17.6 and later "
        "only where its log level lets them through"
    )


def _is_trainer(facts: Facts) -> bool:
    """Whether this is Hugging Face's Trainer, under which DeepSpeed's engine prints no steps unless
    its JSON asks for them."""
    every = facts.setting("steps_per_print") or facts.run.config.get("steps_per_print")
    asked = isinstance(every, int | float) and math.isfinite(every)
    return facts.run.meta.get("framework") == "huggingface" and not asked


def _draws_bars(facts: Facts) -> bool:
    """Whether a bar is all that shows the loop around the engine, which may be the Trainer: not of
    a pipeline's engine, which that does not drive."""
    known = facts.run.meta.get("framework") not in (None, "deepspeed")
    known |= facts.is_by_pipeline_engine or _is_own_loop(facts)
    return not known and bool(facts.run.told["name"].eq("bar_total").any())  # its bar knows its end


def _is_own_loop(facts: Facts) -> bool:
    """Whether lines of a script's own loop stand beside the bar: it is not the Trainer's then."""
    return bool(facts.run.told["pattern"].astype("str").str.startswith("loops.").any())


def _shows_trainer(facts: Facts) -> bool:
    """Whether what trains the job can be made to print more than its bar; Lightning cannot."""
    framework = facts.run.meta.get("framework")
    return facts.shows_deepspeed or framework not in (None, "lightning")


def _is_verl(facts: Facts) -> bool:
    return facts.is_torch_alone and facts.run.meta.get("framework") == "verl"


def _cut_turn(facts: Facts) -> int | None:
    """The turn of verl of which a line is left, without its end: where several have none, they are
    not cut."""
    turns = facts.run.told.loc[facts.run.told["pattern"] == "verl.step", "step"].dropna().unique()
    return int(turns[0]) if len(turns) == 1 else None


def _print_steps(facts: Facts) -> tuple[Advice, ...]:
    if _cut_turn(facts):
        return ()
    if _is_verl(facts):
        return (Advice("trainer.logger", "", '"console" among them', "prints turns and timers"),)
    if _is_trainer(facts):
        return (Advice("logging_steps", "", str(_EVERY), "the Trainer's own: prints steps"),)
    if _draws_bars(facts):
        to = f"{_EVERY}, if Hugging Face's Trainer draws the bar"
        return (Advice("logging_steps", "", to, "prints steps"), *_print_engine_steps(facts))
    return _print_engine_steps(facts)


def _print_engine_steps(facts: Facts) -> tuple[Advice, ...]:
    if (_throughput_every(facts) or math.inf) <= _EVERY:
        return ()
    to = str(_EVERY) if _shows_trainer(facts) else if_it_trains(facts, str(_EVERY))
    return change(facts, "steps_per_print", to, "prints steps")


def _throughput_every(facts: Facts) -> int | None:
    """Micro-steps between two throughput lines, which is steps_per_print since 0.3; None if
    unknown.
    """
    if not is_known(facts, lambda first, _: first >= (0, 3, 0)):
        return None
    told = of_kind(facts.run.told, Kind.METRIC, "micro_step")
    turns = told[told["pattern"].str.startswith("deepspeed.throughput").to_numpy(dtype=bool)]
    apart = turns.groupby(["segment", "source"])["value"].diff()
    return whole(apart[apart > 0].median())


def _said_of_speed(facts: Facts) -> str:
    """The stated rates of steps without a number, in words: the median, because the last batch of
    an epoch may be small; of mean rates the last, which covers all.
    """
    events = facts.run.told
    for name, words in _RATES.items():
        told = events.loc[events["name"] == name, "value"].dropna()
        if len(told) > 1 and name != "samples_per_second_mean":
            rate = format_count(told.median())
            alone = "Each is of one rank's micro-batch. " * (name == _OF_ONE)
            return f"It states {len(told):,} rates, of {rate} samples/s in the median. {alone}"
        if len(told):
            last = f", last of {len(told):,}" * (len(told) > 1)
            return f"It states {words} of {format_count(told.iloc[-1])} samples/s{last}. "
    return _profiled(events) or _tuned(events) or _said_of_bars(facts)


def _said_of_bars(facts: Facts) -> str:
    """What the source's progress bars can tell of speed."""
    if _cut_turn(facts):
        return ""
    if unmoved(facts.run):
        return "Not one turn of its progress bar had ended where the source ends. "
    if bar(facts.run) is None:
        return ""
    if _bars_of_steps(facts):
        return "A progress bar counts its steps; only its last position is read, which times none. "
    return "A progress bar moves; whether an iteration of it is an optimizer step is not stated. "


def _profiled(events: pd.DataFrame) -> str | None:
    """What the flops profiler's last report says about the step it profiled."""
    last = _last_profile(events)
    said = ", ".join(
        f"{word} {format_seconds(last[name])}" for name, word in _PROFILED.items() if name in last
    )
    if not said:
        return None
    rates = events.loc[events["name"] == "profiled_samples_per_second", "value"].dropna()
    rate = f" ({format_count(rates.iloc[-1])} samples/s)" if len(rates) else ""
    return f"The flops profiler's report says of one profiled step: {said}{rate}. "


def _tuned(events: pd.DataFrame) -> str:
    """The best of an autotuner's experiments, by the metric that it was asked for."""
    best = of_kind(events, Kind.METRIC, "autotuned_best").tail(1)
    if best.empty or not best["value"].iloc[0] > 0:
        return ""
    many, name = int(best["count"].iloc[0]), best["text"].iloc[0]
    value = format_count(best["value"].iloc[0])
    return f"The best of the autotuner's {many:,} experiments is {name}: {value} by its metric. "


def _last_profile(events: pd.DataFrame) -> pd.Series[float]:
    """Seconds per part of the step in the flops profiler's last report."""
    told = events[events["name"].isin(list(_PROFILED)) & events["seconds"].gt(0)]
    told = told[told["source"] == told["source"].iloc[-1]] if len(told) else told
    return told.drop_duplicates("name", keep="last").set_index("name")["seconds"]


def _is_clocked(events: pd.DataFrame) -> bool:
    """Whether wall_clock_breakdown is on: only then does the profiler report backward."""
    return "profiled_backward_seconds" in _last_profile(events)


def _slow_optimizer(events: pd.DataFrame) -> str | None:
    """Says so if most of the profiled step is the update. Nothing is said about other parts: the
    profile may be of a micro-batch without an update, as most are.
    """
    last = _last_profile(events)
    if not {"profiled_step_seconds", "profiled_iteration_seconds"} <= {*last.index}:
        return None
    update, whole_step = last["profiled_step_seconds"], last["profiled_iteration_seconds"]
    if not whole_step / 2 <= update <= whole_step:
        return None
    return (
        f"{format_share(update / whole_step)} of the one step that was profiled is the optimizer: "
        f"{format_seconds(update)} of {format_seconds(whole_step)}"
    )


def _bars_of_steps(facts: Facts) -> bool:
    """Whether a bar's total is a number of steps that the job plans to train."""
    events = facts.run.told
    totals = events.loc[events["name"] == "bar_total", "value"].dropna()
    return bool(totals.isin(steps_meant(events)).any())


def _has_timers(facts: Facts) -> bool:
    timed = facts.run.as_told  # a repair may have removed truncated ones
    return bool(((timed["kind"] == Kind.PHASE) & timed["seconds"].gt(0)).any())


def _of_parts(facts: Facts) -> str:
    """What timer lines that close no step show nevertheless."""
    repairs = facts.run.repairs
    alone = repairs.loc[repairs["name"] == "micro-batches-alone", "text"]
    told = next(map(str, alone), "it has timer lines, but none that closes a complete step")
    return f"{told[0].upper()}{told[1:]}. {said_of_percentages(facts.run.told)}"


def _log_level(facts: Facts) -> tuple[Advice, ...]:
    """Advice to set log_level, which exists since 0.19.3."""
    if not is_known(facts, lambda first, _: first >= (0, 19, 3)):
        return ()
    return change(facts, "log_level", "info", "lets the lines through")
