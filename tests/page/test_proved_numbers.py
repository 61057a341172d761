"""The line that a number leads to holds that number, or the page says how it follows."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dsprof.events import CLASSES
from dsprof.page.classes import drawn_classes
from dsprof.page.contents import contents
from dsprof.page.model import Place
from dsprof.page.verdict import Verdict, verdict
from dsprof.text.overview import overview
from dsprof.text.parts import BLENT, UNTIMED
from dsprof.units import format_share
from tests.loaded import sample
from tests.page.runs import made, with_rows

SAMPLES = Path(__file__).parents[2] / "sample_logs"
#: Samples, and what their step time is read from.
PAGES = {
    "neox_pipeline_2023": "iter time (s)",
    "killed_rank_torchrun_0.19.8": "fwd:",
    "zero3_0.19.8": "fwd:",
    "comms_verbose_0.16.9": "CurrSamplesPerSec",
    "fp16_overflow_0.19.8": "fwd:",
}


@cache
def lines_of(name: str) -> list[str]:
    return (SAMPLES / f"{name}.log").read_text(errors="replace").split("\n")


def line_at(place: Place) -> str:
    return lines_of(Path(place.source).stem)[place.line - 1]


def after(word: str, line: str) -> float:
    """The number behind a word of a line."""
    found = re.search(re.escape(word) + r"[\s:=]*([\d.]+)", line)
    assert found, f"{word} is not in {line}"
    return float(found[1])


def first_screen(name: str) -> Verdict:
    return verdict(sample(name))


@pytest.mark.parametrize(
    ("name", "word"), [*PAGES.items(), ("straggler_0.16.9", "CurrSamplesPerSec")]
)
def test_the_time_of_a_step_leads_to_the_lines_it_is_read_from(name: str, word: str) -> None:
    step = first_screen(name).step
    assert step.among
    assert all(word in line_at(place) for _, place in step.among.lines)


def test_a_mean_step_is_the_mean_of_the_times_on_its_lines() -> None:
    step = first_screen("neox_pipeline_2023").step
    assert step.among
    said = [after("iter time (s)", line_at(place)) for _, place in step.among.lines]
    assert step.text == f"{np.mean(said):.2f} s"


@pytest.mark.parametrize(
    ("name", "word", "decimals"),
    [
        ("neox_pipeline_2023", "samples/sec", 2),
        ("straggler_0.16.9", "CurrSamplesPerSec", 0),
        ("comms_verbose_0.16.9", "CurrSamplesPerSec", 0),
    ],
)
def test_a_throughput_is_that_over_the_time_of_the_rates_on_its_lines(
    name: str, word: str, decimals: int
) -> None:
    rate = dict(first_screen(name).facts)["Throughput"]
    assert rate.among
    said = [after(word, line_at(place)) for _, place in rate.among.lines]
    assert rate.text == f"{len(said) / sum(1 / one for one in said):,.{decimals}f} samples/s, mean"


def test_a_throughput_of_more_steps_than_have_a_rate_leads_to_the_timers_it_is_reckoned_from() -> (
    None
):
    page = first_screen("zero3_0.19.8")
    rate = dict(page.facts)["Throughput"]
    assert rate.among
    assert page.step.among
    assert rate.among.lines == page.step.among.lines
    assert "39 printed steps" in page.mean
    assert "whose whole time is known" not in page.mean


def test_a_step_beyond_its_timers_is_their_mean_and_what_rates_have_beyond_theirs() -> None:
    """Each number of it stands on a line that the page leads to."""
    lines = lines_of("zero3_0.19.8")
    timed = [
        sum(after(f" {word}", line) for word in ("fwd:", "bwd:", "step:")) / 1e3
        for line in lines
        if "| fwd:" in line
    ][1:]
    rates = {
        int(after("global_step", line)): after("CurrSamplesPerSec", line)
        for line in lines
        if "CurrSamplesPerSec" in line
    }
    beyond = np.mean([64 / rate - timed[step - 2] for step, rate in rates.items()])
    assert first_screen("zero3_0.19.8").step.text == f"{1e3 * (np.mean(timed) + beyond):.1f} ms"


def test_the_highest_of_rates_is_not_called_the_longest() -> None:
    rate = dict(first_screen("neox_pipeline_2023").facts)["Throughput"]
    assert rate.among
    assert [word for word, _ in rate.among.lines] == ["first, highest", "", "last"]


def test_a_step_time_that_no_line_states_says_how_it_follows() -> None:
    assert "batch size over the samples/s" in first_screen("straggler_0.16.9").judged
    assert "take beyond theirs in the mean" in first_screen("zero3_0.19.8").judged
    assert "sum of its timers" in first_screen("killed_rank_torchrun_0.19.8").judged
    assert first_screen("neox_pipeline_2023").judged == ""  # its lines state it


@pytest.mark.parametrize("name", PAGES)
def test_one_step_has_one_time_on_the_first_screen_and_in_its_icicle(name: str) -> None:
    page = contents(sample(name))
    (section,) = [s for s in page.sections if s.name == "phases-0"]
    root = section.charts[0].figure["data"][0]
    assert root["ids"][0] == "step"
    assert root["text"][0].startswith(page.verdict.step.text + " ")
    top = [v for v, above in zip(root["values"], root["parents"], strict=True) if above == "step"]
    assert sum(top) == pytest.approx(root["values"][0], rel=0.01)


def test_a_chart_of_timers_says_that_whole_steps_are_longer() -> None:
    (steps,) = [s for s in contents(sample("comms_verbose_0.16.9")).sections if s.name == "steps-0"]
    assert "what the timers of each step sum to, 18.9 ms" in steps.words
    assert "known to be 23.2 ms" in steps.words


def test_the_bar_shows_the_classes_that_the_terminal_shows() -> None:
    run = sample("zero3_0.19.8")
    bar = {part.label: part.share for part in contents(run).verdict.parts}
    told = {p.name: p.share for p in overview(run).parts if not p.inside and p.share is not None}
    assert bar["at least communication (collectives)"] == format_share(told["communication"])
    assert bar["compute or communication"] == format_share(told[BLENT])
    assert bar["optimizer"] == format_share(told["optimizer"])
    rest = told[UNTIMED] + told["other"]
    assert bar["no timer or other"] == format_share(rest)


def test_reduction_beside_an_offloaded_optimizer_is_not_called_the_least_of_communication() -> None:
    labels = [part.label for part in first_screen("zero3_offload_0.19.8").parts]
    assert "communication or copies to the host" in labels
    assert not [label for label in labels if "at least" in label]


def test_the_chart_of_steps_shows_timers_of_both_as_compute_or_communication() -> None:
    (steps,) = [s for s in contents(sample("zero3_0.19.8")).sections if s.name == "steps-0"]
    drawn = {t["meta"] for t in steps.charts[0].figure["data"] if t["type"] == "bar"}
    assert {"communication", "mixed", "optimizer"} <= drawn


def test_classes_as_drawn_add_up_to_what_they_were() -> None:
    run = sample("zero3_0.19.8")
    drawn = drawn_classes(run.steps, run.phases)
    whole = drawn[[*CLASSES, "mixed"]].sum(axis=1)
    np.testing.assert_allclose(whole, run.steps[list(CLASSES)].sum(axis=1))
    assert (drawn["other"].dropna() >= 0).all()


def test_self_time_is_called_so_and_shows_the_number_on_its_line() -> None:
    said = [e for f in sample("killed_rank_torchrun_0.19.8").findings for e in f.evidence]
    (own,) = [e for e in said if e.text.startswith("step itself, without the timers inside it: ")]
    found = re.search(r"([\d.]+) ms of ([\d.]+) ms$", own.text)
    assert found
    assert own.line
    line = line_at(Place(own.source, own.line))
    assert f"step: {found[2]}" in line
    assert f" {found[1]}" not in line


def test_a_stretch_that_two_timers_measure_is_called_computed() -> None:
    said = [e.text for f in sample("neox_pipeline_2023").findings for e in f.evidence]
    (derived,) = [text for text in said if text.startswith("comms_in_step")]
    assert derived.startswith("comms_in_step, computed: the time that comms and step share")


@pytest.mark.parametrize("name", PAGES)
def test_every_number_of_a_fact_stands_on_its_own_line(name: str) -> None:
    shown = dict(first_screen(name).facts)
    for label in ("Ranks", "Batch", "ZeRO stage"):
        cell = shown.get(label)
        for place in cell.places if cell else ():
            numbers = set(re.findall(r"\d+", cell.text)) if cell else set()
            assert numbers & set(re.findall(r"\d+", line_at(place)))


def test_the_batch_leads_to_a_line_for_each_of_its_numbers() -> None:
    batch = dict(first_screen("comms_verbose_0.16.9").facts)["Batch"]
    assert batch.among
    said = {word: line_at(place) for word, place in batch.among.lines}
    assert said["train batch size"].endswith(" 128")
    assert said["micro batch size"].endswith(" 32")
    assert said["gradient accumulation steps"].endswith(" 2")


def test_lines_like_the_trainers_do_not_name_the_framework() -> None:
    loss = {"kind": "metric", "name": "loss", "value": 1.0, "pattern": "huggingface.dict"}
    run = with_rows(made(3), loss | {"step": 1, "steps": 1, "rank": 0})
    assert dict(verdict(run).facts)["Framework"].text == "Hugging Face Trainer (by its log lines)"


def test_calls_of_a_step_are_those_inside_steps_and_not_the_loggers_own() -> None:
    (comm,) = [
        s for s in contents(sample("comms_verbose_0.16.9")).sections if s.name == "communication"
    ]
    counts = {row[0].text: row[2].text for row in comm.tables[0].rows}
    assert "log_summary_barrier" not in counts
    assert "barrier" not in counts
    assert counts["all_gather_into_tensor"] == "1"
    assert "18 calls belong to no such step and are left out" in comm.words


def stands_on(text: str, line: str) -> bool:
    """Whether a line has the seconds said, as such, in ms, or as the sum of a window of ten."""
    value, unit = text.split(" ")
    seconds = float(value) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]
    told = [float(number) for number in re.findall(r"\d+\.\d+", line)]
    scales = [1.0, 1e-3, 1e-4]  # seconds, milliseconds, those of ten steps
    return any(abs(n * scale - seconds) <= 0.006 * seconds for n in told for scale in scales)


@pytest.mark.parametrize("name", PAGES)
def test_evidence_of_a_timer_opens_a_line_with_its_number(name: str) -> None:
    pattern = (
        r"per step, (?:as )?at (?:step|record) [\d,]+(?:: ([\d.]+ \w+))?(?: of ([\d.]+ \w+))?$"
    )
    checked = 0
    for proof in (e for f in sample(name).findings for e in f.evidence):
        found = re.search(pattern, proof.text)
        if found and proof.line and "computed" not in proof.text:
            mean = re.search(r"([\d.]+ \w+) per step", proof.text)
            said = found[2] or found[1] or (mean and mean[1])
            assert said
            assert stands_on(said, line_at(Place(proof.source, proof.line))), proof.text
            checked += 1
    assert checked


def test_evidence_of_time_without_a_timer_opens_the_line_that_proves_the_step() -> None:
    told = sample("comms_verbose_0.16.9").findings
    (found,) = [f for f in told if f.title.endswith("explained by no timer")]
    (proof,) = found.evidence
    said = re.search(
        r"^step [\d,]+: ([\d,.]+) samples/s, so ([\d,]+) take ([\d.]+) ms$", proof.text
    )
    assert said
    rate, batch, taken = (float(number.replace(",", "")) for number in said.groups())
    assert proof.line
    stated = after("CurrSamplesPerSec", line_at(Place(proof.source, proof.line)))
    assert stated == pytest.approx(rate, rel=1e-3)
    assert batch / stated == pytest.approx(taken / 1e3, rel=5e-3)


def test_evidence_of_the_configuration_opens_the_line_that_sets_the_key() -> None:
    said = [e for f in sample("zero3_0.19.8").findings for e in f.evidence]
    (key,) = [e for e in said if "wall_clock_breakdown" in e.text]
    assert key.line
    assert line_at(Place(key.source, key.line)).strip() == key.text


def test_a_step_that_no_timer_divides_is_left_out_of_all_that_is_said_of_the_mean_step() -> None:
    """As in a log of two runs, the second without timers and much faster."""
    fast = {"kind": "metric", "name": "step_seconds", "seconds": 0.01, "step": 5, "rank": 0}
    page = contents(with_rows(made(4), fast))
    assert page.verdict.step.text == "1.60 s"
    assert page.verdict.mean.startswith("Mean of 4 printed steps, 1 to 4, those that are timed")
    section = {section.name: section for section in page.sections}
    phases = section["phases-0"]
    assert phases.charts[0].figure["data"][0]["text"][0].startswith("1.60 s")
    assert str(phases.lead).startswith("Mean of 4 steps, 1 to 4")
    assert str(section["steps-0"].words).startswith("All of the 4 averaged take 1.60 s")
