"""`Run`: one job's events and the views of them that everything else reads."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cached_property
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from dsprof import grammar as dialects
from dsprof.recording.layout import SUFFIX
from dsprof.run import comm, memory
from dsprof.run.defects.cumulative import table_is_suspect
from dsprof.run.defects.known import DEFECTS
from dsprof.run.defects.misfits import (
    long_pauses,
    micro_batches_alone,
    phases_exceed_step,
    timers_contradict,
)
from dsprof.run.defects.unread import clashes, faults, jobs, repetitions, strangers, wraps
from dsprof.run.ends import problems
from dsprof.run.ends.unclosed import with_unclosed
from dsprof.run.job import config, meta
from dsprof.run.job.hosts import by_own_names
from dsprof.run.job.longest import longest_part
from dsprof.run.recorded import moments, spans
from dsprof.run.recorded.recorded import Recorded
from dsprof.run.repairs import Repair, Source, repair, table_of
from dsprof.run.steps import bars, durations, phases, steps
from dsprof.run.steps.partial import partial_timers
from dsprof.run.steps.seldom import rates_of_few, seldom_rates
from dsprof.run.steps.zero import (
    Mixture,
    Zero,
    blind_timers,
    exchanged,
    fills_buckets,
    mixture_of,
    timers_of,
    untimed_steps,
    zero_of,
)
from dsprof.run.table import STEP, frame_of, tidy, where
from dsprof.run.versions import versions

if TYPE_CHECKING:
    from dsprof.findings import Finding
    from dsprof.findings.facts import Facts
    from dsprof.grammar import Grammar
    from dsprof.recording.bulk import Bulk


class Run:
    """One job, read: a table of events and views of it, each made when first asked for.

    Every view is a pandas frame except `config` and `meta` (dicts), `coverage` and
    `findings`. Seconds and bytes; what the source does not say is missing.
    """

    def __init__(
        self,
        recorded: pd.DataFrame,
        *,
        coverage: Any = None,
        meta: Mapping[str, Any] | None = None,
        grammar: Grammar | None = None,
        bulk: Bulk | None = None,
        whole: Callable[[], pa.Table] | None = None,
    ) -> None:
        """Of `bulk` recordings `recorded` holds what is told one by one; `whole` reads the rest."""
        self._own = tidy(recorded)
        self._bulk, self._whole = bulk, whole
        self.coverage = coverage
        self.grammar = grammar or dialects.builtin()
        self._facts = dict(meta or {})

    def __repr__(self) -> str:
        events = len(self._own) if self._bulk is None else self._bulk.rows
        return f"Run({events:,} events, {len(self.steps):,} steps)"

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, how sure it is, what to change, and of how much.

        Texts may be a log's own words, so they are escaped.
        """
        said = []
        for verdict in self.findings[:1]:
            said += [f"<b>{escape(verdict.title)}</b>", f"{verdict.confidence} confidence"]
            for setting, now, to, _ in verdict.advice:
                said.append(escape(f"{setting}: {now} → {to}" if now else f"{setting}: {to}"))
        rows, what = len(self.steps), "record" if self.counted else "optimizer step"
        said.append(f"{rows:,} {what}{'s' * (rows != 1)} {self.steps_were}")
        return f"<div>{'<br>'.join(said)}</div>"

    @cached_property
    def recorded(self) -> pd.DataFrame:
        """The events before any repair."""
        return self._own if self._whole is None else tidy(frame_of(self._whole()))

    @cached_property
    def _repaired(self) -> tuple[pd.DataFrame, list[Repair]]:
        return repair(by_own_names(self._own), self._source, DEFECTS)

    @cached_property
    def _rows(self) -> Recorded | None:
        """What recordings hold by the million."""
        return None if self._bulk is None else Recorded(self._bulk, self.told)

    @cached_property
    def _source(self) -> Source:
        return Source(
            versions(self._own, self._facts),
            self.grammar.timers,
            self.config,
            self.zero,
            self._mixture,
            [one.id for one in self.grammar.patterns if one.from_zero],
            {one.id: one.window for one in self.grammar.patterns if one.window},
            not self._facts.get("counted_steps"),
        )

    @cached_property
    def _recorded(self) -> bool:
        """Whether any of it was recorded from inside the job."""
        return self._bulk is not None or bool(spans.recorded(self.told).any())

    @property
    def is_watched(self) -> bool:
        """Whether what is said of it is shown beside a clock that goes on, as in `dsprof live`."""
        return bool(self._facts.get("watched"))

    @cached_property
    def is_recording(self) -> bool:
        """Its phases were recorded from inside the job, or it has none but no log either.

        A log that is read beside them adds what it says, but no phase.
        """
        return self._recorded or self.is_recorded_alone

    @cached_property
    def is_recorded_alone(self) -> bool:
        """Everything was recorded from inside the job: no log was read."""
        sources = self.told["source"].dropna().unique()
        return len(sources) > 0 and all(str(source).endswith(SUFFIX) for source in sources)

    @property
    def steps_were(self) -> str:
        """`recorded` or `printed`."""
        return "recorded" if self.is_recording else "printed"

    @property
    def counted(self) -> bool:
        """No line states a step number: `step` counts printed steps, real ones are unknown."""
        return bool(self.meta.get("counted_steps"))

    @property
    def as_told(self) -> pd.DataFrame:
        """`told` before any repair."""
        return self._own

    @property
    def told(self) -> pd.DataFrame:
        """The events, without what recordings repeat in every step and rank by the million.

        Those rows (spans, calls, and of all but the lowest rank that tells them steps and metrics)
        are in `phases`, `comm` and `steps`; of each process its first and last are here.
        """
        return self._repaired[0]

    @cached_property
    def events(self) -> pd.DataFrame:
        """Everything that happened, known defects of the source repaired.

        Of recordings every row is read for this, some 150 bytes each: `told` is what a view asks.
        """
        if self._whole is None:
            return self.told
        return repair(by_own_names(self.recorded), self._source, DEFECTS)[0]

    @cached_property
    def repairs(self) -> pd.DataFrame:
        """What was corrected, or cannot be trusted, and why."""
        over = durations.overrun(self.steps, self._steps[1])
        late = phases_exceed_step(self.told, over, int(durations.stated(self.steps).sum()))
        barred = (self.steps["seconds_from"] == "bar").any()
        found = [durations.pauses(self.steps), *([bars.pauses(self.told)] if barred else [])]
        paused = long_pauses(pd.concat(found).drop_duplicates(list(STEP)))
        facts = self._facts
        of_facts = (jobs, wraps, repetitions, clashes, strangers)
        told = (faults(self._own, facts), *(tell(facts) for tell in of_facts))
        odd = timers_contradict(phases.contradictions(self.phases))
        partial = None if self._recorded else partial_timers(self.steps, self.phases)
        alone = micro_batches_alone(self.told, self.phases, self.grammar.timers)
        out = bars.evaluations(self.told) if barred else None
        seldom = () if self._recorded else (seldom_rates, rates_of_few)
        rare = (tell(self.told, self.steps) for tell in seldom)
        more = filter(None, (late, paused, odd, partial, alone, out, *rare))
        return table_of([*chain.from_iterable(told), *self._repaired[1], *more])

    @cached_property
    def config(self) -> dict[str, Any]:
        """What the job was told, as its launch that took most time was, which reports are of;
        absent where the source does not say."""
        last = config.config(self._own)
        if not config.told_again(self._own):
            return last
        read = copy(self)
        vars(read)["config"] = last
        _ = read.comm  # here: the thread that would ask for it may not wait for this one
        judged = longest_part(read.steps)["segment"]
        own = last if judged.empty else config.config(self._own, int(judged.iloc[0]))
        if own == last:
            vars(self).update(vars(read))
        return own

    @cached_property
    def meta(self) -> dict[str, Any]:
        """What the job is: framework, versions, ranks, hosts, layout, sources."""
        told = {"zero_stage": self.zero.stage} if self.zero.stage is not None else {}
        config = self.config | told
        return meta.meta(self._own, config, self._source.version, self._facts)

    @property
    def inputs(self) -> list[str]:
        """Every source that was named, including those of other jobs."""
        return list(
            dict.fromkeys([*self.meta.get("sources", ()), *chain(*self.meta.get("jobs", ()))])
        )

    @cached_property
    def zero(self) -> Zero:
        """The ZeRO stages this run may be of, and why no others."""
        return zero_of(self._own, self.config, self._facts.get("fingerprints", {}))

    @cached_property
    def _mixture(self) -> Mixture | None:
        blind = blind_timers(self._own, self.grammar.timers)
        return mixture_of(self.zero, timers_of(self._own), self.config, blind, self._untimed)

    @cached_property
    def _untimed(self) -> frozenset[str]:
        return untimed_steps(self._own)

    @property
    def step_may_gather(self) -> bool:
        """The timer of the whole step counts as the optimizer's and would hold the gathering of
        updated parameters, if ZeRO is on: the source tells neither the stage nor timers inside."""
        alone = self.config.get("world_size") == 1
        return bool(self._untimed) and self.zero.stage is None and not alone

    @cached_property
    def reduces_inside_backward(self) -> str | None:
        """Why `backward_inner`, which counts as compute, holds reduction as well, or may."""
        if self.is_recording:  # it times what its calls hold up by themselves
            return None
        return fills_buckets(self.zero, set(self.phases["name"].unique()), self.config)

    @property
    def exchanged(self) -> str:
        """What forward and backward hold beside compute, and no timer shows: "what tensor
        parallelism exchanges"; "" if nothing. A recording has the calls themselves."""
        return "" if self.is_recording else exchanged(self.config)

    @property
    def hides_communication(self) -> bool:
        """Whether timers that count as compute hold communication as well, or may."""
        return bool(self.reduces_inside_backward or self.exchanged)

    @property
    def mixed(self) -> str | None:
        """Why timers of this run hold compute and communication unseparated; None if none do.

        They are marked in `phases`; logged calls may still split what they hold, in `steps`.
        """
        return self._mixture.why if self._mixture else None

    @cached_property
    def phases(self) -> pd.DataFrame:
        """Where one optimizer step's seconds went, a row per timer, step and rank.

        If there is a recording, it replaces the timers of the same run's log.
        """
        recorded = spans.recorded(self.told)
        found = spans.phases(self.told) if recorded.any() else None
        if self._rows is not None:
            found = self._rows.phases
        logged = phases.phases(
            self.told if found is None else self.told[~recorded],
            self.grammar.timers,
            accumulation=self.config.get("gradient_accumulation_steps"),
            mixed=self._mixture.names if self._mixture else frozenset(),
        )
        return logged if found is None else spans.joined(found, logged)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per optimizer step that the source marks."""
        return self._steps[0]

    @property
    def timed(self) -> pd.Series[float]:
        """The sum of each step's timers on the mean rank, even if its time is known otherwise."""
        return self._steps[1]

    @cached_property
    def _steps(self) -> tuple[pd.DataFrame, pd.Series[float]]:
        """With them the sum of the timers of each."""
        _ = self.told, self.config, self._rows  # both threads ask for them
        if self._rows is None:
            timed, called, times = self.phases, self.comm, None
        else:
            rows = self._rows
            with ThreadPoolExecutor(1) as beside:  # both hold millions of rows
                calls = beside.submit(lambda: (self.comm, rows.times))
                timed = self.phases
                called, times = calls.result()
        return steps.steps(
            self.told,
            timed,
            called,
            self.config,
            recorded=self._recorded,
            counted=self.counted,
            hidden=self.hides_communication,
            times=times,
        )

    @cached_property
    def comm(self) -> pd.DataFrame:
        """Collectives and point-to-point calls."""
        return comm.comm(
            self.told,
            self.config,
            tables_suspect=table_is_suspect(self.told, self._source),
            calls=self._rows.calls if self._rows is not None else None,
        )

    @cached_property
    def memory(self) -> pd.DataFrame:
        """Memory as the source states it."""
        return memory.memory(self.told)

    @cached_property
    def gpu(self) -> pd.DataFrame:
        """Samples of the GPUs themselves."""
        return memory.gpu(self.told)

    def moments(
        self, steps: pd.DataFrame, ranks: Container[int] | None = None, *, outer: bool = False
    ) -> pd.DataFrame:
        """When the phases and calls of some of `steps` were, in `moments.COLUMNS`; no row unless
        they were recorded. With `outer` without what lies inside phases.
        """
        if self._rows is None:
            found = moments.told_moments(self.told, steps if outer else steps[:0])
            mine = found["rank"].map(lambda rank: ranks is None or rank in ranks).astype(bool)
            return where(found, mine).reset_index(drop=True)
        clocks = self._facts.get("clocks") or {}
        ahead = {host: told.get("ahead", 0.0) for host, told in clocks.items()}
        wanted = [one for one in self._rows.processes if ranks is None or one.rank in ranks]
        return moments.moments(wanted, steps, ahead, outer=outer)

    @cached_property
    def problems(self) -> pd.DataFrame:
        """Failures and warnings; `root_cause` marks what came first."""
        severities = {p.id: p.severity for p in self.grammar.patterns if p.severity}
        told = with_unclosed(
            self.told, self._facts.get("recordings", ()), self._facts.get("clocks")
        )
        found = problems.problems(told, severities)
        return (
            found.assign(step=found["step"].mask(found["step"].notna())) if self.counted else found
        )

    @cached_property
    def findings(self) -> list[Finding]:
        """What is wrong: what ended the run first, then by severity and cost.

        The first one is the verdict.

        This is the one import from a higher layer: findings are computed from a Run, and the Run
        offers them, and what they are based on, as views. Nothing else here may do so.
        """
        from dsprof.findings import findings_of

        return findings_of(self)

    @cached_property
    def judged(self) -> list[Facts]:
        """What findings and reports are based on, per engine: the judged one first."""
        from dsprof.findings.facts import facts_of

        return facts_of(self)
