"""Losses and gradient norms that are no numbers."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from dsprof.events import Kind, Severity
from dsprof.findings.advice import bf16, clipping
from dsprof.findings.evidence import row_evidence, whole
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.thresholds import (
    DIVERGED_RECORDS,
    DIVERGED_TIMES,
    EARLY_EPOCH,
    EARLY_STEP,
    HARDLY_A_RATE,
    LOST_RECORDS,
)
from dsprof.run.table import STEP, among, of_kind, positions, where
from dsprof.units import format_count

_GRADIENT: Final = "gradient norm"


class End(NamedTuple):
    """How a source goes on behind the first of its last values that are not finite."""

    records: int  # that follow it, all of them not finite either
    from_start: bool  # no finite value stands before the first that is none
    infinite: bool  # each value is inf, none nan: what the loss scaler skips looks like that

    @property
    def is_lost(self) -> bool:
        return self.records >= LOST_RECORDS


def nan_loss(facts: Facts) -> list[Finding] | str:
    """A loss, gradient norm or the like is not a number."""
    events = facts.run.told
    losses = of_kind(events, Kind.METRIC, "loss", "grad_norm")
    problems = where(facts.run.problems, facts.run.problems["kind"] == "nan")
    counted = of_kind(events, Kind.METRIC, "nan_window")
    counted = where(counted, counted["value"].gt(0))
    if losses.empty and problems.empty and counted.empty:
        return _of_bars(of_kind(events, Kind.METRIC, "bar_loss"))
    bad = where(losses, ~np.isfinite(losses["value"]))
    bad = where(bad, ~_skipped_there(facts, bad))
    if bad.empty and counted.empty and problems.empty:
        return _zeros(facts, losses)
    rows = pd.concat([bad, counted]).sort_values("line", kind="stable")
    return [_not_a_number(facts, rows, problems, losses, bad)]


def _of_bars(losses: pd.DataFrame) -> list[Finding] | str:
    """Where bars alone show a loss: of each stretch of them the last one is read."""
    if losses.empty:
        return "no line shows a loss or a gradient norm"
    if np.isfinite(losses["value"].iloc[-1]):
        return []
    last = losses.iloc[-1]
    return [
        Finding(
            rule="nan-loss",
            severity=Severity.CRITICAL,
            title="The loss is not finite in the last progress bar",
            summary="Since when is unknown: earlier bars are not read, and other lines show no "
            "loss. Medium confidence: whether it goes on is unknown.",
            evidence=(row_evidence(last, f"loss beside the bar: {last['value']}"),),
            advice=(
                Advice(
                    "torch.autograd.set_detect_anomaly()",
                    "",
                    "True, for one run",
                    "names the operation that makes the first nan",
                ),
            ),
            confidence="medium",
        )
    ]


#: Losses that the Trainer prints are rounded to four digits: from this on 0 is none of them.
_FAR_FROM_ZERO: Final = 0.1
#: Its lines, also those of what stands on it.
_OF_TRAINER: Final = ("huggingface.train", "huggingface.train_swift", "huggingface.train_swift_log")
#: The Trainer leaves losses that are no numbers out of the sum that it prints.
_FILTERED: Final = (
    "The Trainer of transformers leaves losses that are not finite out of the mean it prints "
    "(logging_nan_inf_filter, its default): it prints 0 if it had no other. It would print 0 as "
    "well if no label is left to learn from."
)


def _zeros(facts: Facts, losses: pd.DataFrame) -> list[Finding]:
    """A loss of exactly 0 behind one far from it, to the end: the Trainer's word for no number."""
    told = where(losses, among(losses["name"], ["loss"]) & among(losses["pattern"], _OF_TRAINER))
    last = told[told["source"].eq(told["source"].iloc[-1])] if len(told) else told
    other = np.flatnonzero(last["value"].to_numpy() != 0)
    masked = of_kind(facts.run.told, Kind.METRIC, "masked_sample")
    if len(masked):
        return _without_labels(last.iloc[other[-1] + 1 if len(other) else 0 :], masked)
    if not len(other):
        return _all_zero(facts, last, where(losses, among(losses["name"], ["grad_norm"])))
    if not 0 <= other[-1] < len(last) - 1:
        return []
    before, zeros = last.iloc[other[-1]], last.iloc[other[-1] + 1 :]
    if before["value"] < _FAR_FROM_ZERO:
        return []
    first = zeros.iloc[0]
    more = " and in each record after it" if len(zeros) > 1 else ""
    return [
        Finding(
            rule="nan-loss",
            severity=Severity.CRITICAL,
            title=f"The loss is exactly 0{_at_step(first)}: it may not be finite",
            summary=f"It was {before['value']:.4g} in the record before, and is 0{_at_step(first)}"
            f"{more}. {_FILTERED} Medium confidence: the log cannot say which of the two it is.",
            evidence=tuple(
                row_evidence(row, f"loss{_at_step(row)}: {row['value']:.4g}")
                for row in (before, first)
            ),
            advice=_of_zeros(facts),
            confidence="medium",
        )
    ]


def _all_zero(facts: Facts, zeros: pd.DataFrame, norms: pd.DataFrame) -> list[Finding]:
    """A loss and gradients of exactly 0 in each record: nothing is learned. In reinforcement
    learning a loss of 0 is usual, and some versions of DeepSpeed tell no norm of gradients."""
    if len(zeros) < LOST_RECORDS or norms.empty or norms["value"].ne(0).any():
        return []
    if facts.run.told["name"].astype("str").str.startswith("reward").any():
        return []
    return [
        Finding(
            rule="nan-loss",
            severity=Severity.CRITICAL,
            title=f"The loss is exactly 0 in each of the {len(zeros):,} records, and so are the "
            "gradients: nothing is learned",
            summary=f"{_FILTERED} Medium confidence: the log cannot say which of the two it is.",
            evidence=tuple(
                row_evidence(row, f"loss{_at_step(row)}: 0") for _, row in zeros.head(2).iterrows()
            ),
            advice=_of_zeros(facts),
            confidence="medium",
        )
    ]


def _of_zeros(facts: Facts) -> tuple[Advice, ...]:
    return (
        Advice("logging_nan_inf_filter", "", "false", "shows losses that are not finite"),
        Advice("labels of a batch", "", "look at them", "are all of them masked (-100)?"),
        *_wider(facts),
    )


def _without_labels(zeros: pd.DataFrame, masked: pd.DataFrame) -> list[Finding]:
    """A loss of exactly 0 to the end where samples lost all their labels."""
    if zeros.empty:
        return []
    first, told = zeros.iloc[0], masked.iloc[0]
    count = f"{format_count(len(masked))} sample{'s' if len(masked) > 1 else ''}"
    return [
        Finding(
            rule="nan-loss",
            severity=Severity.CRITICAL,
            title=f"The loss is exactly 0{_at_step(first)}: {count} lost all labels",
            summary=f"Of {count} the log says that the tokenizer splits them differently from "
            "what the conversation template expects; LLaVA's and FastChat's code masks all labels "
            "of such a sample, and nothing is learned from it. The loss is 0 where no label is "
            "left.",
            evidence=(
                row_evidence(first, f"loss{_at_step(first)}: 0"),
                row_evidence(told, "tokenization mismatch: the sample is ignored"),
            ),
            advice=(
                Advice("--version", "", "the model's own", "names the template of a conversation"),
                Advice("labels of a batch", "", "look at them", "are all of them masked (-100)?"),
            ),
        )
    ]


def _end(losses: pd.DataFrame, bad: pd.DataFrame) -> End:
    """Of values that are not always finite: the records after the last one that is, in the source
    that shows one first; others (of other ranks) show the same steps. Each engine has its own, and
    of loss and gradient norm the one counts that is not finite for longer."""
    bad = bad[bad["source"].isin(bad["source"].head(1))]
    well = losses[np.isfinite(losses["value"]) & losses["source"].isin(bad["source"])]
    of_series = [well["engine"], well["name"].astype("str")]
    ends = [
        _end_of(rows, well.index[(of_series[0] == engine) & (of_series[1] == name)])
        for (engine, name), rows in bad.groupby(["engine", bad["name"].astype("str")])
    ]
    return End(
        records=max((end.records for end in ends), default=0),
        from_start=bool(ends) and all(end.from_start for end in ends),
        infinite=bool(ends) and all(end.infinite for end in ends),
    )


def _end_of(bad: pd.DataFrame, well: pd.Index[int]) -> End:
    """The same of one name of one engine: rows that are not finite, and where finite ones are."""
    last = bad[bad.index > well.max()] if len(well) else bad
    return End(
        records=max(0, last["record"].nunique() - 1),
        from_start=not (well < bad.index.min()).any(),
        infinite=len(last) > 0 and bool(np.isinf(last["value"]).all()),
    )


def _not_a_number(
    facts: Facts,
    rows: pd.DataFrame,
    problems: pd.DataFrame,
    losses: pd.DataFrame,
    bad: pd.DataFrame,
) -> Finding:
    end = _end(losses, bad)
    steps = pd.concat([rows["step"], problems["step"]]).dropna()
    first = whole(steps.min()) if len(steps) else None
    words = problems["text"].astype("str") if rows.empty else bad["name"].astype("str")
    said = sorted({_GRADIENT if "grad" in word else "loss" for word in words})
    names = " and ".join(said) or "loss"
    where = _since(first, end) if len(rows) or first is None else f" after step {first:,}"
    recovered = _finite_after(facts, pd.concat([rows, problems]))
    unsure = not recovered and not end.is_lost
    as_loaded = not facts.run.counted and _is_before_any_update(bad, end)
    return Finding(
        rule="nan-loss",
        severity=Severity.WARNING if recovered else Severity.CRITICAL,
        title=f"The {names} {'are' if len(said) > 1 else 'is'} not finite{where}",
        summary=(
            f"That holds for {format_count(steps.nunique())} of the printed steps; later ones are "
            "finite again."
            if recovered
            else _goes_on(end, said)
        ),
        steps=None if first is None else (first, int(steps.max())),
        evidence=tuple(
            row_evidence(row, f"{row['name']}{_at_step(row)}: {row['value']}")
            for _, row in rows.head(3).iterrows()
        )
        + tuple(row_evidence(row, str(row["text"])) for _, row in problems.head(2).iterrows()),
        advice=(
            *_before_it(facts, said, updated=not as_loaded),
            *(() if end.infinite else _at_once(losses, bad)),
            *(_AS_LOADED if as_loaded else _early(facts, first)),
            *_wider(facts),
        ),
        confidence="medium" if unsure else "high",
    )


def _before_it(facts: Facts, names: list[str], *, updated: bool) -> tuple[Advice, ...]:
    """Clipping, if an update came before, and not by a norm that is no number itself: that
    multiplies by it."""
    if _GRADIENT not in names:
        return clipping(facts, "tames outliers") if updated else ()
    why = "names the operation that makes the first nan; clipping by such a norm cannot help"
    return (Advice("torch.autograd.set_detect_anomaly()", "", "True, for one run", why),)


def _goes_on(end: End, names: list[str]) -> str:
    """What is known of the time after, where no value is finite again."""
    if end.is_lost and names == [_GRADIENT]:
        return (
            f"Not one of the {end.records:,} gradient norms that follow is finite. A loss scaler "
            "skips such steps: then nothing more is learned. Without one, what was trained from "
            "there on is lost."
        )
    if end.is_lost:
        return (
            f"Not one of the {end.records:,} records that follow is finite: what was trained from "
            "there on is lost."
        )
    follow = (
        "It is the last one that the source tells"
        if not end.records
        else f"The source ends {end.records:,} record{'s' * (end.records > 1)} later, not finite "
        "either"
    )
    one = " or ".join(names) or "loss"
    skipped = f" An infinite {one} of fp16 is often a step that is skipped." * end.infinite
    return f"{follow}. Medium confidence: whether it goes on is unknown.{skipped}"


def _since(first: int | None, end: End) -> str:
    """From which step on; where none before it is shown, it may have begun earlier."""
    if first is None:
        return ""
    return f" at step {first:,}" + (", the first one shown" if end.from_start and first > 1 else "")


def _at_once(losses: pd.DataFrame, bad: pd.DataFrame) -> tuple[Advice, ...]:
    """The batches since the last finite loss, if that and those before it were as usual."""
    lost = bad[bad["name"].eq("loss") & bad["step"].notna()].head(1)
    if lost.empty:
        return ()
    first, told = lost.iloc[0], losses[losses["name"].eq("loss") & losses["step"].notna()]
    same = ["source", "segment", "engine"]
    told = told[(told[same] == first[same]).all(axis=1) & (told["step"] < first["step"])]
    told = told[np.isfinite(told["value"])].tail(DIVERGED_RECORDS)
    past = told["value"].to_numpy(dtype=float)
    if len(past) < LOST_RECORDS or past.min() <= 0 or past[-1] > DIVERGED_TIMES * np.median(past):
        return ()
    last, step = int(told["step"].iloc[-1]), int(first["step"])
    which = (
        f"batch of step {step:,}"
        if step == last + 1
        else f"batches of steps {last + 1:,} to {step:,}"
    )
    why = "losses were as usual up to there: a bad sample makes one that is not finite at once"
    return (Advice(which, "", "look at its data, on each rank", why),)


_AS_LOADED: Final = (
    Advice(
        "first batch",
        "",
        "look at its labels and inputs, on each rank",
        "no update came before it, so no learning rate is the cause; the mean loss of a batch "
        "whose labels are all masked (-100) is nan",
    ),
    Advice(
        "weights as they were loaded",
        "",
        "look whether all are finite",
        "a damaged checkpoint, or weights that nothing initialized, show at the first batch",
    ),
)


def _is_before_any_update(bad: pd.DataFrame, end: End) -> bool:
    """Whether the first value that is not finite is of the first step alone."""
    return end.from_start and bool((bad["step"].eq(1) & bad["steps"].fillna(1).eq(1)).any())


def _early(facts: Facts, first: int | None) -> tuple[Advice, ...]:
    """The learning rate, where training has hardly begun, and where it changed anything. Records
    that are counted may be of any step."""
    if facts.run.counted and not _in_first_epoch(facts):
        return ()
    if first is None or first > EARLY_STEP or _hardly_trained(facts, first):
        return ()
    why = "the usual cause at an early step"
    return (Advice("learning rate, warm-up", "", "lower, longer", why),)


def _in_first_epoch(facts: Facts) -> bool:
    """Whether the first record, where it names its epoch, is of the beginning of the first."""
    epochs = of_kind(facts.run.told, Kind.METRIC, "epoch")["value"].dropna()
    return epochs.empty or bool(epochs.iloc[0] < EARLY_EPOCH)


def _hardly_trained(facts: Facts, first: int) -> bool:
    """Whether the learning rates up to that step, where all are told, let no weight move."""
    steps = facts.run.steps
    rates = steps["lr"][steps["step"] <= first]
    return len(rates) == first and bool(rates.lt(HARDLY_A_RATE).all())


def _wider(facts: Facts) -> tuple[Advice, ...]:
    """bf16 instead of fp16; a loss scale that is 1 at every step shows that fp16 is not on."""
    if facts.run.config.get("dtype") == "fp32":
        return ()
    scales = facts.run.steps["loss_scale"].dropna()
    overflows = of_kind(facts.run.told, Kind.METRIC, "overflow")
    if len(scales) and scales.eq(1).all() and overflows.empty:
        return ()
    return bf16(facts, "same range as fp32: no overflow of activations")


def _at_step(row: pd.Series[Any]) -> str:
    return f" at step {int(row['step']):,}" if pd.notna(row["step"]) else ""


def _finite_after(facts: Facts, rows: pd.DataFrame) -> bool:
    """Whether each engine has a finite loss behind the last of `rows` that is at a step: in a
    later launch, too, which may begin at an earlier one."""
    steps, told = facts.run.steps, rows[rows["step"].notna()]
    well = steps[np.isfinite(steps["loss"])]
    for engine, own in told.groupby("engine", dropna=False):
        losses = well if pd.isna(engine) else well[well["engine"] == engine]
        last = own.sort_values(["segment", "step"]).iloc[-1]
        here = losses["step"][losses["segment"] == last["segment"]]
        if not ((losses["segment"] > last["segment"]).any() or (here > last["step"]).any()):
            return False
    return len(told) > 0


def _skipped_there(facts: Facts, rows: pd.DataFrame) -> np.ndarray:
    """A gradient norm of inf at a skipped step is the loss scaler at work."""
    over = where(facts.run.steps, facts.run.steps["overflow"].fillna(False).astype(bool))
    return among(rows["name"], ["grad_norm"]) & (positions(over, rows, *STEP) >= 0)
