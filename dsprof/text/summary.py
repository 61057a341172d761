"""The terminal summary: the verdict first, then its proof, then the rest by weight."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from dsprof.analysis.breakdown import (
    breakdown_of,
    engines,
    follow_each_other,
    main_steps,
    mean_of,
)
from dsprof.analysis.checkpoints import behind_the_last, evaluations_behind_the_last
from dsprof.analysis.layout import offloads_optimizer, setting
from dsprof.events import Class
from dsprof.findings.ranks.late_in_part import late_parts
from dsprof.findings.ranks.late_ranks import may_wait
from dsprof.logs.sources.csv_monitor import is_scalar_file
from dsprof.text import words
from dsprof.text.calls import call_section
from dsprof.text.layout import QUIET, columns, say, section
from dsprof.text.overview import Overview, overview, rate_of
from dsprof.text.table import PLAIN, PartTable
from dsprof.text.trust import coverage_section, problem_section, repair_section, silence_section
from dsprof.text.verdict import other_section, reason_section, verdict_section
from dsprof.units import format_count, format_seconds, format_share

if TYPE_CHECKING:
    import pandas as pd

    from dsprof.analysis.ranks import Straggler
    from dsprof.findings.unknown.last_bar import Bar
    from dsprof.run import Run

_OTHER_JOBS: Final = 4
_NAMES: Final = 3  # of a job's files
_PRODUCT: Final = {"deepspeed": "DeepSpeed", "torch": "PyTorch", "nccl": "NCCL"}


def summary(run: Run, *, blocks: bool = True) -> Group:
    """What a run suffers from, for a terminal of 80 columns or more.

    Args:
        run: any run.
        blocks: draw bars with block characters; False where the encoding has none.
    """
    seen = overview(run)
    sections = [
        section
        for section in (
            verdict_section(run.findings, seen, words.gpu_count(run)),
            _jobs(run.meta),
            _step(run, seen, blocks=blocks),
            call_section(run) if seen.seconds is None else [],
            reason_section(run.findings),
            other_section(run.findings),
            problem_section(run.problems),
            _facts(run, seen),
            repair_section(run.repairs),
            coverage_section(run.coverage),
            silence_section(run),
        )
        if section
    ]
    return Group(*(part for section in sections for part in [*section, Text()]))


def _jobs(meta: Mapping[str, Any]) -> list[RenderableType]:
    """Whose report this is, and how to see the others, where files are of several jobs."""
    if not meta.get("jobs"):
        return []
    own, *others = (_paths(job) for job in meta["jobs"])
    rows = columns(8)
    rows.add_row(say("Read", QUIET), say(_named(own)))
    for number, job in enumerate(others[:_OTHER_JOBS]):
        said = f"dsprof report {' '.join(map(quote, job[:_NAMES]))}{' ...' * (len(job) > _NAMES)}"
        rows.add_row(say("" if number else "Others", QUIET), say(said))
    left = len(others) - _OTHER_JOBS
    more = [say(f"{words.count_of(left, 'other job')} in --json", QUIET)] if left > 0 else []
    return section("All of this is about one job", words.one_of_jobs(meta), rows, *more)


def _paths(files: list[str]) -> list[str]:
    """What to read a job from: of a csv monitor's files their folder."""
    paths = (str(PurePath(name).parent) if is_scalar_file(name) else name for name in files)
    return list(dict.fromkeys(paths))


def _named(files: list[str]) -> str:
    more = len(files) - _NAMES
    return ", ".join(files[:_NAMES]) + (
        f" and {words.count_of(more, 'more file')}" if more > 0 else ""
    )


def _step(run: Run, seen: Overview, *, blocks: bool) -> list[RenderableType]:
    if seen.seconds is None:
        return []
    by = words.measured_by(seen.seconds_from, recorded=run.is_recording)
    of = words.steps_by(seen.averaged, by, seen.window)
    mean = f"{format_seconds(seen.seconds)}, {'mean of ' if seen.averaged > 1 else ''}{of}"
    launch = words.launch_of(run, main_steps(run.steps))
    mean += f" of {launch}" * bool(launch) + _of_engine(run) + seen.aside
    if not seen.classes:
        return section("One step", mean, say("No timer says where it goes.", QUIET))
    return section(
        "Where a step goes",
        mean,
        PartTable(seen.parts, blocks=blocks),
        *_notes(run, seen, blocks=blocks),
    )


def _of_engine(run: Run) -> str:
    """Whose steps the table has: the verdict may be about another engine."""
    known = list(engines(run.steps))
    return f" of engine {known[0]}" if known else ""


def _notes(run: Run, seen: Overview, *, blocks: bool) -> list[Text]:
    whose = words.of_ranks(run, main_steps(run.steps))
    said = [*_bounds(run, seen, blocks=blocks), *([whose] if whose else [])]
    return [say(one, QUIET) for one in said]


def _bounds(run: Run, seen: Overview, *, blocks: bool) -> list[str]:
    """What the signs before numbers mean."""
    signs = {part.sign for part in seen.parts if part.sign}
    if not signs:
        return []
    least, most = ("≥", "≤") if blocks else (PLAIN["≥"], PLAIN["≤"])
    also = f", {most} at most" if "≤" in signs else ""
    said = [f"{least} is at least{also}: {_hidden(run)}."]
    if offloads_optimizer(run.config):
        said.append("Offloading: the timer of communication holds copies to the host, too.")
    return said


def _hidden(run: Run) -> str:
    """Where more communication lies than its own timers show."""
    said = [f"forward and backward also hold {run.exchanged}"] if run.exchanged else []
    if run.reduces_inside_backward and run.zero.stage is None:
        said.append("if the ZeRO stage is 2, backward_inner reduces, too")
    elif run.reduces_inside_backward:
        said.append(f"ZeRO-{run.zero.stage} reduces inside backward_inner, too")
    return "; ".join(said) or "more of it lies in the timers that hold both"


def _facts(run: Run, seen: Overview) -> list[RenderableType]:
    rows = columns(8)
    for label, said in (
        ("Job", _job(run)),
        ("Layout", _layout(run)),
        ("Clocks", words.of_clocks(run.meta)),
        ("Ranks", _ranks(run)),
        ("Steps", _steps(seen, run)),
        ("Engines", _engines(seen, run)),
        ("Speed", _speed(seen)),
        ("Loss", _loss(seen)),
        ("Overall", _overall(seen)),
        ("Calls", words.calls_seen(run.told)),
        ("Own cost", _recording(run, seen)),
        ("Bar", _bar(seen)),
    ):
        if said:
            rows.add_row(say(label, QUIET), say(said))
    return section("Run", "", rows) if rows.row_count else []


def _recording(run: Run, seen: Overview) -> str:
    """`81 µs of a step (0.3 %) to record it, median by its own account`."""
    told = run.told
    cost = told.loc[told["name"] == "overhead", "seconds"].median()
    if not cost > 0 or not seen.seconds:
        return ""
    share = format_share(cost / seen.seconds)
    said = f"{format_seconds(cost)} of a step ({share}) to record it"
    return f"{said}, median by its own account"


def _job(run: Run) -> str:
    """`GPT-NeoX, DeepSpeed 0.16.9, PyTorch 2.6.0`, as far as known."""
    framework = str(run.meta.get("framework") or "")
    versions = run.meta.get("versions") or {}
    said = [f"{_PRODUCT.get(name, name)} {version}" for name, version in versions.items()]
    spans = words.deepspeed(run.meta)
    if spans and "deepspeed" not in versions:
        said.insert(0, f"DeepSpeed {spans}")
    named = [] if framework == "deepspeed" and said else [words.FRAMEWORK.get(framework, framework)]
    return ", ".join(filter(None, [*named, *said]))


def _layout(run: Run) -> str:
    known = {**run.config, **run.meta}
    ranks = known.get("world_size")
    said = [words.count_of(int(ranks), "rank") if ranks else "", words.on_hosts(known)]
    sizes = [
        f"{kind} parallel {known[f'{kind}_parallel_size']}"
        for kind in ("data", "tensor", "pipeline", "expert", "sequence")
        if (known.get(f"{kind}_parallel_size") or 1) != 1
    ]
    stage = known.get("zero_stage")
    zero = f"ZeRO {stage}{_kept(run.config)}" if words.known(stage) else ""
    micro = run.judged[0].layout.micro_batches
    batches = words.count_of(int(micro), "micro-batch", "micro-batches") if micro else ""
    batches += " a step" if batches else ""
    whole = [" ".join(filter(None, said)), words.partly_recorded(known)]
    return ", ".join(filter(None, [*whole, *sizes, known.get("wrapper"), zero, batches]))


def _kept(config: Mapping[str, Any]) -> str:
    """Where ZeRO keeps what, if not all of it in shards of all ranks: ` (optimizer on cpu)`."""
    parts = {"optimizer": "offload_optimizer", "parameters": "offload_param"}
    away = [
        f"{part} on {config[name]}"
        for part, name in parts.items()
        if config.get(name) not in {None, "none"}
    ]
    group = setting(config, "zero_optimization.zero_hpz_partition_size")
    if isinstance(group, int) and group > 1:
        away.append(f"hpZ over {group} ranks")
    return f" ({', '.join(away)})" if away else ""


def _ranks(run: Run) -> str:
    """Who the others wait for; "" where ranks cannot be compared, nobody is behind, or who seems
    to be may be the one that waits."""
    facts = run.judged[0]
    late = facts.straggler
    if late is None or late.delay <= 0 or may_wait(facts, late):
        return ""
    parts = [_late(part.late, f"the steps {part.when}") for part in late_parts(facts) if part.when]
    return "; ".join(parts) or _late(late, words.count_of(late.steps, "compared step"))


def _late(late: Straggler, steps: str) -> str:
    be = "is" if len(late.group) == 1 else "are"
    return (
        f"{late.who} {be} last in {format_share(late.held)} of {steps}, "
        f"{format_seconds(late.delay)} per step behind the median rank, most of it {late.place}"
    )


def _steps(seen: Overview, run: Run) -> str:
    skipped = f"{seen.skipped:,} skipped (overflow)" if seen.skipped else ""
    if not seen.rows:
        return skipped
    launches = f"in {seen.launches:,} launches" if seen.launches > 1 else ""
    said = filter(None, [_which(seen, run), launches, seen.spread, skipped])
    return ", ".join(said) + _after(run)


def _after(run: Run) -> str:
    """`; saving took 2.32 s after the last step`: the time of no step holds it.

    Of an evaluation in the script's own loop only the forwards are timed.
    """
    behind = (
        ("saving took", behind_the_last),
        ("evaluating took at least", evaluations_behind_the_last),
    )
    each = {what: _of_slowest(found(run.told, run.steps)) for what, found in behind}
    said = [f"{what} {format_seconds(took)}" for what, took in each.items() if took]
    return f"; {' and '.join(said)} after the last step" if said else ""


def _of_slowest(rows: pd.DataFrame) -> float:
    """Seconds of the slowest rank of each launch and engine."""
    return float(rows.groupby(["segment", "engine", "step"])["seconds"].max().sum())


def _engines(seen: Overview, run: Run) -> str:
    """Several engines that share a log (actor, critic), or that one process trains: the step of
    each, and whose figures these are."""
    known = list(engines(run.steps))
    if not known:
        return ""
    each = "; ".join(f"engine {engine} {_step_of(run, engine)}" for engine in known)
    every = ""
    if seen.seconds_apart:
        every = f", a step of engine {known[0]} every {format_seconds(seen.seconds_apart)}"
    how = "one after another" if follow_each_other(run.steps) else "in turns"
    return f"{len(known)} {how}{every}: {each}. These figures are of engine {known[0]}"


def _step_of(run: Run, engine: int) -> str:
    """`takes 617 ms per step, 68 % of it communication`."""
    steps = main_steps(run.steps[run.steps["engine"] == engine])
    said = f"takes {format_seconds(mean_of(steps, 'seconds'))} per step"
    mean = breakdown_of(steps, run.phases)
    if mean is None or not mean.classes:
        return said
    name, seconds = max(mean.classes.items(), key=lambda part: part[1])
    what = "in no timer" if name == Class.OTHER else name
    return f"{said}, {format_share(seconds / mean.seconds)} of it {what}"


def _which(seen: Overview, run: Run) -> str:
    if seen.first is None or seen.last is None:
        return words.of_records(run.steps)
    which = f"{seen.first:,}" if seen.first == seen.last else f"{seen.first:,} to {seen.last:,}"
    again = seen.rows > seen.last - seen.first + 1  # several launches or engines have the same
    of_them = "" if again else " of them"
    return f"{which}, {seen.rows:,}{of_them} {run.steps_were}"


def _speed(seen: Overview) -> str:
    rates = {
        "samples/s": (seen.samples_per_second, seen.samples_per_second_mean),
        "tokens/s": (seen.tokens_per_second, seen.tokens_per_second_mean),
        "tokens/s a GPU": (seen.tokens_per_second_gpu, None),
        "TFLOP/s a GPU": (seen.tflops, seen.tflops_mean),
    }
    said = []
    for unit, (rate, so_far) in rates.items():
        if rate:
            said.append(f"{format_count(rate)} {unit}")
        elif so_far and not seen.training:
            said.append(f"{format_count(so_far)} {unit} since the start")
    if seen.samples_per_second_of_steps:
        said[0] = rate_of(
            seen.samples_per_second_of_steps,
            seen.samples_per_second or 0.0,
            seen.samples_per_second_counted or seen.samples_per_second_mean,
        )
    return ", ".join(said)


def _loss(seen: Overview) -> str:
    if seen.loss is None:
        return ""
    first, last = (f"{value:#.4g}".rstrip(".") for value in seen.loss)
    one = "step" if seen.first is not None else "record"
    said = first if first == last else f"{first} → {last}"
    if seen.loss_until is None:
        return said
    return f"{said} at {one} {seen.loss_until:,}, not a number since"


def _overall(seen: Overview) -> str:
    """What the Trainer's last record states, evaluation and checkpoints included."""
    said = seen.training
    if said is None:
        return ""
    rates = {
        "samples/s": said.samples_per_second,
        "tokens/s": said.tokens_per_second,
        "steps/s": said.steps_per_second,
    }
    told = [f"{format_count(rate)} {unit}" for unit, rate in rates.items() if rate]
    return ", ".join([f"training took {format_seconds(said.seconds)}", *told])


def _each(bar: Bar) -> str:
    """The rate that a bar states: of its first turns neither the mean nor that of the last."""
    if not bar.lately:
        return ""
    rate = f"{format_seconds(bar.lately)} each"
    if bar.is_closed:
        return f", {rate}"
    return f", {rate} as it smooths them" if bar.remembers_first else f", lately {rate}"


def _bar(seen: Overview) -> str:
    if seen.bar is None:
        return ""
    said = seen.bar
    each = _each(said)
    told = {"loss": said.loss, "reward": said.reward}
    each += "".join(f", {name} {value:.4g}" for name, value in told.items() if value is not None)
    of = "" if said.total is None else f" of {said.total:,}"
    turns = "micro-batches" if said.counts_micro_batches else "turns"
    turns = "optimizer steps" if said.counts_steps else turns
    unsure = "; whether a turn is an optimizer step is not stated" * (turns == "turns")
    return f"{said.position:,}{of} {turns} in {format_seconds(said.seconds)}{each}" + unsure
