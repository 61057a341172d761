"""The first screen: what is wrong, the number that proves it, how the run was laid out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd

from dsprof.analysis.breakdown import breakdown_of, main_steps
from dsprof.charts import LABEL, STACK
from dsprof.page import words
from dsprof.page.model import Cell, Place
from dsprof.units import format_count, format_seconds, format_share

if TYPE_CHECKING:
    from dsprof.findings import Finding
    from dsprof.run import Run


#: What the share of a finding is spent on, where its title may count more than that.
_SPENT: Final = {
    "communication-bound": " is communication",
    "pipeline-bubble": " is waiting for other stages",
    "pipeline-imbalance": " is waiting for slower stages",
    "straggler-rank": " is waiting for a late rank",
}


class Told(NamedTuple):
    """A finding with what it costs and whom it concerns, in words."""

    finding: Finding
    cost: str
    note: str


def told(finding: Finding) -> Told:
    cost = format_share(finding.share) + " of step time" if finding.share is not None else ""
    if not cost and finding.seconds_per_step is not None:
        cost = f"{format_seconds(finding.seconds_per_step)} per step"
    gain = words.gain(finding.gain, None)
    notes = [
        f"Gain {gain}" if gain else "",
        _ranks_of(finding.ranks),
        f"Phase {finding.phase}" if finding.phase else "",
        _span(finding.steps),
        f"{finding.confidence.capitalize()} confidence",
        f"Rule {finding.rule}",
    ]
    return Told(finding, cost, " · ".join(filter(None, notes)))


def _ranks_of(ranks: tuple[int, ...]) -> str:
    return f"{'Rank' if len(ranks) == 1 else 'Ranks'} {words.ranges(ranks)}" if ranks else ""


def _span(steps: tuple[int, int] | None) -> str:
    if steps is None:
        return ""
    return words.span(*steps, "Step")


@dataclass(frozen=True, slots=True)
class Part:
    """One class of an average step."""

    role: str
    label: str
    seconds: str
    share: str
    start: float  # percent of the step before it
    width: float  # percent of the step


@dataclass(frozen=True, slots=True)
class Verdict:
    """What stands on the first screen."""

    finding: Finding | None
    number: str
    proves: str
    place: Place | None
    gain: str
    sure: str
    step: str
    bound: str
    parts: list[Part]
    facts: list[tuple[str, Cell]]


def verdict(run: Run) -> Verdict:
    found = run.findings[0] if run.findings else None
    main = main_steps(run.steps)
    step = float(main["seconds"].mean()) if len(main) else None
    number, proves = _number(found, step)
    return Verdict(
        finding=found,
        number=number,
        proves=proves,
        place=_proof(found),
        gain=words.gain(found.gain, step) if found else "",
        sure=words.CONFIDENCE.get(found.confidence, "") if found else "",
        step=format_seconds(step) if step else "",
        bound=_bound(run.steps),
        parts=_parts(run, main),
        facts=_facts(run),
    )


def _number(found: Finding | None, step: float | None) -> tuple[str, str]:
    if found is None or _tells_nothing(found):
        return "", ""
    if found.share is not None:
        cost = found.seconds_per_step
        of = f" of {format_seconds(step)}" if step else ""
        what = f"of step time{_SPENT.get(found.rule, '')}"
        return format_share(found.share), (
            f"{what}: {format_seconds(cost)}{of} per step" if cost else what
        )
    if found.seconds_per_step is not None:
        return format_seconds(found.seconds_per_step), "per step"
    return "", ""


def _tells_nothing(found: Finding) -> bool:
    """All of the step is unaccounted for: a large 100 % would look like a measurement."""
    return found.rule == "unaccounted-time" and found.share == 1


def _proof(found: Finding | None) -> Place | None:
    for proof in found.evidence if found else ():
        place = Place.of(proof.source, proof.line)
        if place:
            return place
    return None


def _bound(steps: pd.DataFrame) -> str:
    """How many steps each class holds back, in words; empty where no step is known."""
    counts = steps["bound"].astype("object").fillna("unknown").value_counts()
    unknown = int(counts.get("unknown", 0))
    said = [f"{count:,} {bound}-bound" for bound, count in counts.items() if bound != "unknown"]
    if not said:
        return ""
    said += [f"{unknown:,} unknown"] if unknown else []
    return f"Of {words.count_of(len(steps), 'step')}: {', '.join(said)}."


def _parts(run: Run, main: pd.DataFrame) -> list[Part]:
    """Classes of the average step, as wide as they last."""
    mean = breakdown_of(main, run.phases.iloc[:0])  # classes are in the steps already
    if mean is None or not mean.seconds or not mean.classes:
        return []
    seconds = {c.value: mean.classes.get(c.value, 0.0) for c in STACK}
    seconds["unknown"] = max(0.0, mean.seconds - sum(seconds.values()))
    whole = max(mean.seconds, sum(seconds.values()))
    parts, start = [], 0.0
    for role, value in seconds.items():
        width = 100 * value / whole
        if width >= 0.05:
            parts.append(
                Part(
                    role,
                    LABEL[role],
                    format_seconds(value),
                    format_share(value / whole),
                    round(start, 3),
                    round(width, 3),
                )
            )
            start += width
    return parts


def _facts(run: Run) -> list[tuple[str, Cell]]:
    known = {**run.config, **run.meta}
    said = {
        "Framework": _framework(known),
        "Ranks": _ranks(known),
        "Parallel layout": _parallel(known),
        "ZeRO stage": _zero(known),
        "Batch": _batch(known),
        "Model": _model(known),
        "Network": known.get("network"),
        "Steps": _steps(run.steps),
        "Time": _time(run.events["at"]),
        "Read from": _sources(known),
    }
    rows = run.events[run.events["kind"] == "config"]
    return [
        (label, Cell(str(value), _where(rows, label))) for label, value in said.items() if value
    ]


_PROVED_BY = {
    "Ranks": "world_size",
    "ZeRO stage": "zero_stage",
    "Batch": "train_batch_size",
    "Model": "parameters",
    "Network": "network",
    "Framework": "deepspeed_version",
    "Parallel layout": "pipeline_parallel_size",
}


def _where(config_rows: pd.DataFrame, label: str) -> Place | None:
    rows = config_rows[config_rows["name"] == _PROVED_BY.get(label, "")]
    return Place.of(str(rows["source"].iloc[-1]), rows["line"].iloc[-1]) if len(rows) else None


def _framework(known: dict[str, Any]) -> str:
    versions = {
        "DeepSpeed": known.get("deepspeed_version"),
        "PyTorch": known.get("torch_version"),
        "NCCL": known.get("nccl_version"),
    }
    said = [f"{name} {value}" for name, value in versions.items() if value]
    framework = known.get("framework")
    return ", ".join([str(framework), *said] if framework else said)


def _ranks(known: dict[str, Any]) -> str:
    ranks, hosts = known.get("world_size"), known.get("nodes") or len(known.get("hosts") or [])
    if not ranks:
        return ""
    return format_count(ranks) + (f" on {words.count_of(int(hosts), 'host')}" if hosts else "")


def _parallel(known: dict[str, Any]) -> str:
    names = {
        "data": "data",
        "tensor": "tensor",
        "pipeline": "pipeline",
        "expert": "expert",
        "sequence": "sequence",
    }
    sizes = {label: known.get(f"{key}_parallel_size") for key, label in names.items()}
    return ", ".join(f"{label} {size}" for label, size in sizes.items() if size)


def _zero(known: dict[str, Any]) -> str:
    stage = known.get("zero_stage")
    if not words.known(stage):
        return ""
    away = [
        f"{part} on {known[key]}"
        for part, key in (("optimizer", "offload_optimizer"), ("parameters", "offload_param"))
        if known.get(key) not in (None, "none")
    ]
    return ", ".join([str(stage), *away])


def _batch(known: dict[str, Any]) -> str:
    micro, times, whole = (
        known.get(k)
        for k in ("micro_batch_size", "gradient_accumulation_steps", "train_batch_size")
    )
    said = [
        f"{format_count(whole)} samples a step" if whole else "",
        f"micro-batch {micro}" if micro else "",
        f"{times} accumulation steps" if times else "",
    ]
    return ", ".join(filter(None, said))


def _model(known: dict[str, Any]) -> str:
    size = known.get("parameters")
    said = [f"{format_count(size)} parameters" if size else "", str(known.get("dtype") or "")]
    length = known.get("seq_length")
    return ", ".join(
        filter(None, [*said, f"{format_count(length)} tokens a sample" if length else ""])
    )


def _steps(steps: pd.DataFrame) -> str:
    if steps.empty:
        return ""
    first, last = int(steps["step"].min()), int(steps["step"].max())
    launches = steps["segment"].nunique()
    shown = f"{words.count_of(len(steps), 'row')}, step {first:,} to {last:,}"
    return shown + (f", {launches} launches" if launches > 1 else "")


def _time(at: pd.Series[Any]) -> str:
    told = at.dropna()
    if told.empty:
        return ""
    first, last = told.min(), told.max()
    zone = " UTC" if getattr(first, "tzinfo", None) else ", the log's own clock"
    return f"{first:%Y-%m-%d %H:%M:%S}{zone}, for {format_seconds((last - first).total_seconds())}"


def _sources(known: dict[str, Any]) -> str:
    names = [str(s).rsplit("/", 1)[-1] for s in known.get("sources") or []]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
