"""What must hold for every finding of every real log, whatever it says."""

from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path

import pytest
from rich.console import Console

from dsprof.analysis.breakdown import breakdown_of, main_steps
from dsprof.errors import DsprofError
from dsprof.events import CLASSES
from dsprof.findings import Advice, Finding, findings_of
from dsprof.run import Run
from dsprof.text.overview import overview
from dsprof.text.summary import summary
from dsprof.units import format_seconds
from tests.loaded import loaded

ROOT = Path(__file__).parents[2]
#: Beside the checkout, where present: other people's logs, and more runs of this project.
SHARED = ROOT.parent / "shared"

LOGS = sorted(
    path
    for folder in (ROOT / "sample_logs", SHARED / "real-runs", SHARED / "corpus")
    for path in (*folder.glob("*.log"), *folder.glob("csv_monitor_*"))
    if path.suffix != ".json"
)

SAMPLES = [path for path in LOGS if path.parent.name == "sample_logs"]

#: A title names this much of a finding's cost; rules whose first evidence is a failure's own line.
_OF_A_STEP = re.compile(r"^(?:At least )?([\d.]+) % of a step")


def judged(path: Path) -> tuple[Run, list[Finding]]:
    try:
        run = loaded(path)
    except DsprofError as error:
        pytest.skip(str(error))
    return run, findings_of(run)


def value_of(text: str) -> object:
    """What a setting's text says: `5e8` and `500000000` are one number."""
    word = text.rsplit("(", maxsplit=1)[-1] if text.startswith("unset (") else text
    word = re.split(r"[ ,)]", word.strip())[0]
    try:
        return float(word)
    except ValueError:
        return word.lower()


def explained(advice: Advice) -> str:
    return f"{advice.setting}: {advice.now} -> {advice.to}"


@pytest.fixture(scope="module", params=LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def findings(request: pytest.FixtureRequest) -> list[Finding]:
    return judged(request.param)[1]


@pytest.fixture(scope="module", params=LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def run(request: pytest.FixtureRequest) -> Run:
    return judged(request.param)[0]


def test_a_share_is_a_part_of_a_step(findings: list[Finding]) -> None:
    for found in findings:
        assert found.share is None or 0 <= found.share <= 1, found


def test_nothing_costs_more_than_the_step_it_is_taken_from(run: Run) -> None:
    for found in run.findings:
        if found.seconds_per_step is not None and found.share:
            step = found.seconds_per_step / found.share
            assert step <= 1.01 * _longest(run), found.title


def _longest(run: Run) -> float:
    views = (main_steps(run.steps)["seconds"], run.steps["seconds"])
    return max(float(seconds.max()) for seconds in views)


def test_a_gain_is_at_most_the_cost(findings: list[Finding]) -> None:
    for found in findings:
        if found.gain is not None:
            low, high = found.gain
            assert found.seconds_per_step is not None, found.title
            assert 0 <= low <= high <= 1.001 * found.seconds_per_step, found.title


def test_a_gain_has_advice_that_brings_it(findings: list[Finding]) -> None:
    assert all(found.advice for found in findings if found.gain is not None)


def test_no_advice_proposes_what_is_set(findings: list[Finding]) -> None:
    for found in findings:
        for advice in found.advice:
            if advice.now:
                assert value_of(advice.now) != value_of(advice.to), explained(advice)


def test_the_share_in_the_title_is_that_of_the_cost(findings: list[Finding]) -> None:
    for found in findings:
        said = _OF_A_STEP.match(found.title)
        parts = found.rule in ("pipeline-bubble", "pipeline-imbalance")  # these say all of it first
        if said and found.share is not None and not parts:
            assert math.isclose(float(said[1]) / 100, found.share, abs_tol=0.006), found.title


def test_the_evidence_shows_the_number_that_the_finding_claims(findings: list[Finding]) -> None:
    """Of a class with one phase, or of calls: the proof names the seconds that are claimed."""
    for found in findings:
        proofs = [proof.text for proof in found.evidence if "per step" in proof.text]
        if found.seconds_per_step is not None and len(proofs) == 1 and not found.ranks:
            claimed = format_seconds(found.seconds_per_step)
            assert claimed in proofs[0] or _larger(proofs[0], found), (found.title, proofs)


def _larger(text: str, found: Finding) -> bool:
    """A finding may claim a part of what its phase takes, never more."""
    return max(_seconds_in(text), default=-1.0) >= 0.99 * (found.seconds_per_step or 0.0)


def _seconds_in(text: str) -> list[float]:
    units = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
    told = re.findall(r"(\d[\d,]*(?:\.\d+)?) (ns|µs|ms|s|min)\b", text)
    return [float(number.replace(",", "")) * units[unit] for number, unit in told]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_seconds_that_the_verdict_claims_are_proved_or_stand_in_the_step(path: Path) -> None:
    run, (verdict, *_) = judged(path)
    proofs = [second for proof in verdict.evidence for second in _seconds_in(proof.text)][:12]
    told = [sum(some) for n in (1, 2, 3) for some in combinations(proofs, n)]
    mean = breakdown_of(main_steps(run.steps), run.phases)
    told += [mean.seconds, *mean.classes.values()] if mean else []
    # What no line says: what is left of a step, and what many lines add up to.
    if verdict.rule in ("unaccounted-time", "small-messages"):
        told += [verdict.seconds_per_step or 0.0]
    first_sentence = verdict.summary.split(". ")[0]
    for claimed in _seconds_in(f"{verdict.title}. {first_sentence}"):
        assert any(math.isclose(claimed, one, rel_tol=0.011) for one in told), (claimed, told)


def test_what_costs_time_has_something_to_change(findings: list[Finding]) -> None:
    dear = [f for f in findings if f.seconds_per_step and f.share and not f.advice]
    assert all("No bucket size causes them" in f.summary for f in dear), [f.title for f in dear]


def test_no_text_shows_a_missing_value(findings: list[Finding]) -> None:
    for found in findings:
        for text in (found.title, found.summary, *(explained(a) for a in found.advice)):
            assert not re.search(r"\b(None|NaN|nan|<NA>|NaT)\b", text), text


def test_what_is_not_known_has_no_cost_and_good_news_has_none(findings: list[Finding]) -> None:
    for found in findings:
        if "unknown" in found.title or "cannot" in found.title or found.rule == "healthy":
            assert found.share is None, found.title
            assert found.seconds_per_step is None, found.title


def test_what_is_doubted_is_no_verdict_where_a_cause_is_known(findings: list[Finding]) -> None:
    if findings[0].rule == "untrustworthy-timers":
        assert not [f for f in findings if f.share and f.rule != "untrustworthy-timers"]


def test_classes_of_the_average_step_fit_into_it(run: Run) -> None:
    mean = breakdown_of(main_steps(run.steps), run.phases)
    if mean is not None:
        assert sum(mean.classes.values()) <= 1.001 * mean.seconds


def test_the_mean_step_lies_among_the_steps(run: Run) -> None:
    steps = main_steps(run.steps)["seconds"]
    if len(steps):
        assert steps.min() <= steps.mean() * 1.001
        assert steps.mean() <= steps.max() * 1.001


def test_median_and_percentile_lie_among_the_steps_in_order(run: Run) -> None:
    seen = overview(run)
    steps = main_steps(run.steps)["seconds"]
    if seen.median is not None and seen.p95 is not None:
        assert steps.min() <= seen.median <= seen.p95 <= steps.max()


def test_the_summary_prints_no_missing_value_as_a_figure(run: Run) -> None:
    lines = Console(width=400, no_color=True)
    with lines.capture() as told:
        lines.print(summary(run))
    figures = re.findall(r"\b(?:nan|inf|None|NaT|<NA>) (?:%|s|ms|µs|per step)", told.get())
    assert not figures


def test_parts_of_a_step_add_up_to_it(run: Run) -> None:
    steps = run.steps
    whole = steps[list(CLASSES)].sum(axis=1)
    told = steps["seconds"].notna() & steps["other"].notna()
    assert ((whole - steps["seconds"]).abs() <= 1e-6 + 1e-6 * steps["seconds"])[told].all()
    shares = steps["communication_share"].dropna()
    assert shares.between(0, 1.000001).all()
