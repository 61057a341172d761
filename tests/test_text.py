"""The terminal summary and the JSON document say what the run says, and nothing unsafe."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType

import dsprof
from dsprof.events import Severity
from dsprof.findings import Advice, Finding
from dsprof.run import Run, from_events, load
from dsprof.text.document import document, to_json
from dsprof.text.overview import Overview, overview
from dsprof.text.parts import BLENT, UNTIMED, Part, Phase, parts_of
from dsprof.text.progress import reading
from dsprof.text.summary import summary
from dsprof.text.table import PartTable
from dsprof.text.verdict import verdict_section
from dsprof.text.words import (
    cost,
    count_of,
    gain,
    known,
    number,
    of_clocks,
    on_hosts,
    plain,
    ranges,
)
from dsprof.units import format_count, format_seconds, format_share

Sample = Callable[[str], Run]

SEED = "neox_pipeline_2023"
VARIED = (SEED, "killed_rank_0.19.8", "quiet_0.19.8", "comms_table_0.19.8", "fp16_overflow_0.19.8")


def shown(run: Run, width: int = 80, *, blocks: bool = True, colour: bool = False) -> str:
    file = StringIO()
    console = Console(file=file, width=width, highlight=False, force_terminal=colour)
    console.print(summary(run, blocks=blocks))
    return file.getvalue()


def test_the_first_words_are_the_verdict(sample_run: Sample) -> None:
    run = sample_run(SEED)
    first = " ".join(shown(run).partition("\n\n")[0].split())
    assert first == run.findings[0].title


def test_the_step_is_split_into_its_classes_largest_first(sample_run: Sample) -> None:
    text = shown(sample_run(SEED))
    table = text[text.index("Where a step goes") :].partition("\n\n")[0].splitlines()
    assert "5.75 s, mean of 3 steps (logged times)" in table[0]
    assert [" ".join(line.split()[:-2]) for line in table[1:4]] == [
        "wait for a peer 4.11 s 71 %",
        "compute 1.32 s 23 %",
        "communication 269 ms 4.7 %",
    ]


def test_bars_are_as_long_as_their_shares(sample_run: Sample) -> None:
    text = shown(sample_run(SEED), blocks=False)
    bars = {line.split()[0]: line.count("#") for line in text.splitlines() if "#" in line}
    assert bars["wait"] == pytest.approx(0.714 * 20, abs=0.5)
    assert bars["compute"] == pytest.approx(0.230 * 20, abs=0.5)
    assert bars["data"] == 1  # little, but there


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("name", VARIED)
def test_no_line_is_wider_than_the_terminal(sample_run: Sample, name: str, width: int) -> None:
    wide = [line for line in shown(sample_run(name), width).splitlines() if cell_len(line) > width]
    assert wide == []


LONG = "optimizer_" + "_and_then_some_more" * 5


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("name", ["step", "a_name_of_20_letters", LONG])
def test_numbers_are_whole_at_any_width_and_names_too(name: str, width: int, blocks: bool) -> None:
    parts = [
        Part("compute or communication", name, 12.25, 0.98, at_least=True),
        Part("communication", "", None, None),
        Part("wait", LONG, 0.0456, 0.0005),
        Part("wait", name, 0.0123, 0.0002, inside=True),
    ]
    text = rendered(PartTable(parts, blocks=blocks), width)
    assert max(map(cell_len, text.splitlines())) <= width
    numbers = [line for line in text.splitlines() if "%" in line or "unknown" in line]
    wanted = ("12.2 s", "98 %"), ("unknown",), ("45.6 ms", "<0.1 %"), ("12.3 ms", "<0.1 %")
    for line, words in zip(numbers, wanted, strict=True):
        assert [word for word in words if word not in line] == []
    assert "".join(text.split()).count(LONG) == (3 if name == LONG else 1)
    assert name in "".join(text.split())


def rendered(what: RenderableType, width: int) -> str:
    file = StringIO()
    Console(file=file, width=width, highlight=False).print(what)
    return file.getvalue()


ZERO3 = [
    Phase("step", "other", 8.0),
    Phase("backward_allreduce", "communication", 3.0),
    Phase("forward", "other", 4.0),
    Phase("backward", "other", 0.5),
]


def test_communication_that_is_timed_in_part_is_communication_at_least() -> None:
    parts = parts_of(20.0, {"optimizer": 1.5, "other": 18.5}, ZERO3, blent=("step", "forward"))
    assert parts == [
        Part(BLENT, "step", 12.0, 0.6),
        Part("communication", "backward_allreduce", 3.0, 0.15, at_least=True),
        Part(UNTIMED, "", 3.0, 0.15),
        Part("optimizer", "", 1.5, 0.075),
        Part("other", "backward", 0.5, 0.025),
    ]


def test_communication_that_nobody_timed_is_unknown_unless_there_is_one_rank() -> None:
    classes = {"compute": 3.0, "other": 1.0}
    assert parts_of(4.0, classes, [])[-1] == Part("communication", "", None, None)
    assert [part.name for part in parts_of(4.0, classes, [], alone=True)] == ["compute", UNTIMED]
    assert parts_of(4.0, {}, []) == []


def test_a_timer_that_a_finding_names_has_its_own_row() -> None:
    phases = [Phase("step", "optimizer", 3.0), Phase("clip", "optimizer", 1.0)]
    shown = parts_of(8.0, {"optimizer": 4.0, "communication": 4.0}, phases, named=("clip", "step"))
    assert [(part.name, part.phase, part.inside) for part in shown] == [
        ("optimizer", "step", False),
        ("optimizer", "clip", True),
        ("communication", "", False),
    ]


@pytest.mark.parametrize("classes", [{"other": 6.0}, {"compute": 2.0, "other": 6.0}])
def test_parts_add_up_to_the_step_even_if_its_timers_exceed_it(classes: dict[str, float]) -> None:
    whole = sum(classes.values())
    parts = parts_of(whole, classes, ZERO3, blent=("step", "forward"))
    assert sum(part.seconds or 0.0 for part in parts) == pytest.approx(whole)


def test_zero3_shows_its_reduction_as_communication(sample_run: Sample) -> None:
    text = shown(sample_run("zero3_0.19.8"))
    assert re.search(r"communication +≥\d.* ms +1\d % .* backward_allreduce", text)
    assert "≥ is at least" in text
    assert re.search(r"communication +>=\d.* ms", shown(sample_run("zero3_0.19.8"), blocks=False))


def test_the_first_cause_stands_before_what_follows_from_it(sample_run: Sample) -> None:
    text = shown(sample_run("killed_rank_0.19.8"))
    problems = text[text.index("\nProblems") :]
    assert problems.index("first cause") < problems.index("Killing subprocess")
    assert "killed_rank_0.19.8.log:229" in problems


def test_a_log_without_a_step_says_what_to_ask_for(tmp_path: Path) -> None:
    lines = [line for line in (dsprof_sample(SEED)).read_text().splitlines() if "%comms" in line]
    (tmp_path / "percent.log").write_text("\n".join(lines))
    run = dsprof.load(tmp_path / "percent.log")
    run.findings.clear()
    text = shown(run)
    assert text.startswith("No verdict: the source tells of no optimizer step")
    assert '"wall_clock_breakdown": true' in text


def test_lines_that_were_not_understood_are_counted_and_shown(tmp_path: Path) -> None:
    log = tmp_path / "half.log"
    log.write_text(
        "step 1 gizmo_heat: 3.25 units\nstep 2 gizmo_heat: 4.5 units\n"
        + (dsprof_sample(SEED)).read_text()
    )
    text = shown(dsprof.load(log), 120)
    assert "2 ×" in text
    assert "step # gizmo_heat: #.# units" in text
    assert f"{log.name}:1" in text


def dsprof_sample(name: str) -> Path:
    return Path(__file__).parent.parent / "sample_logs" / f"{name}.log"


HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31mRuntimeError\x9b1m: \x1bPq\x1b\\ \u202egnihton\u202c \x07\x00"
    "[bold]not markup[/bold] <script>alert(1)</script> {{ 7*7 }}"
)


def test_what_a_log_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    log = tmp_path / "hostile.log"
    log.write_bytes(
        dsprof_sample("killed_rank_0.19.8").read_bytes()
        + f"[rank1]: {HOSTILE}\nRuntimeError: CUDA error: {HOSTILE}\n".encode()
        + f"{HOSTILE} gizmo: 3.25\n".encode() * 9
    )
    text = shown(dsprof.load(log), 200)
    assert "9 ×" in text  # the hostile line itself is shown
    assert [c for c in text if not c.isprintable() and c != "\n"] == []
    coloured = shown(dsprof.load(log), 200, colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == text


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x1b\\", "link"),
        ("a\tb\r\nc\u2028d", "a b c d"),
        ("\u202eevil", "evil"),
        ("\x1b", ""),
        ("é × – 漢字", "é × – 漢字"),
    ],
)
def test_plain_text_is_what_a_person_would_read(said: str, left: str) -> None:
    assert plain(said) == left


@given(st.text())
def test_plain_text_is_printable_whatever_comes(said: str) -> None:
    assert plain(said).isprintable()


def test_a_gain_is_the_most_there_is_to_gain() -> None:
    assert gain((0.0, 2.05), 5.75) == "up to 2.05 s of 5.75 s per step (36 %)"
    assert gain((0.8, 1.2), 4.0) == "up to 1.20 s of 4.00 s per step (30 %)"
    assert gain((0.5, 0.5), None) == "up to 500 ms per step"
    assert gain(None, 4.0) == ""


def test_a_healthy_run_costs_nothing_and_an_untimed_one_nobody_knows_what() -> None:
    healthy = finding("healthy", share=0.9, seconds_per_step=3.6)
    assert "Cost" not in rendered(Group(*verdict_section([healthy], figures())), 80)
    untimed = finding("unaccounted-time", share=1.0, seconds_per_step=4.0)
    text = rendered(Group(*verdict_section([untimed], figures())), 80)
    assert re.search(r"Cost +unknown *\n", text)


def test_a_gain_that_nobody_can_tell_is_called_unknown() -> None:
    advice = Advice("bf16.enabled", "", "true", "half the bytes")
    found = finding("slow-link", share=0.5, seconds_per_step=2.0, advice=(advice,))
    assert re.search(
        r"Gain +unknown *\n", rendered(Group(*verdict_section([found], figures())), 80)
    )


def finding(rule: str, **more: Any) -> Finding:
    return Finding(rule, Severity.WARNING, "Something", "is so.", **more)


def figures() -> Overview:
    timed = {"kind": "metric", "name": "step_seconds", "seconds": 4.0, "step": 1, "steps": 1}
    return overview(from_events(pd.DataFrame([timed])))


def test_a_cost_says_what_is_known_of_it() -> None:
    assert cost(4.11, 0.714, 5.75) == "4.11 s of 5.75 s per step (71 %)"
    assert cost(None, 0.5, 5.75) == "50 % of a step"
    assert cost(0.25, None, None) == "250 ms per step"
    assert cost(None, None, 5.75) == ""


def test_small_words() -> None:
    assert count_of(1, "step") == "1 step"
    assert count_of(12_000, "launch", "launches") == "12,000 launches"
    assert ranges([3, 0, 1, 7, 2]) == "0 to 3, 7"
    assert ranges(range(0, 40, 2), most=2) == "0, 2 and 18 more"
    assert not known(pd.NA)
    assert not known(float("nan"))
    assert number(np.float64(2.5)) == 2.5
    assert number(float("inf")) is None


def test_skipped_steps_of_two_launches_add_up(sample_run: Sample) -> None:
    run = sample_run(SEED)
    assert overview(run).skipped == 18
    twice = Run(
        pd.concat([run.recorded, run.recorded.assign(segment=1)], ignore_index=True),
        grammar=run.grammar,
    )
    assert overview(twice).skipped == 36
    assert overview(twice).launches == 2


def test_the_document_is_strict_json_and_agrees_with_the_run(sample_run: Sample) -> None:
    run = sample_run(SEED)
    found = json.loads(json.dumps(document(run), allow_nan=False))
    assert found["schema"] == 1
    assert found["verdict"] == found["findings"][0]
    assert [f["rule"] for f in found["findings"]] == [f.rule for f in run.findings]
    assert found["steps"]["seconds"] == pytest.approx((5.658 + 5.792 + 5.797) / 3)
    assert found["steps"]["classes"]["wait"] == pytest.approx(4.1073, abs=1e-4)
    assert found["steps"]["loss"] == [11.0396, 9.1411]
    assert found["coverage"]["lines"] == 20


def test_mean_and_spread_are_of_the_same_steps_known_in_the_same_way(sample_run: Sample) -> None:
    """Timers of each step, and a rate for every tenth: only the rate tells of whole steps."""
    run = sample_run("slow_data_0.19.8")
    rates = run.steps[run.steps["whole_seconds"].notna()]
    told = document(run)["steps"]
    assert (told["rows"], told["averaged"], told["seconds_from"]) == (40, 4, "throughput")
    assert told["seconds"] == pytest.approx(rates["whole_seconds"].mean())
    assert told["median"] == pytest.approx(rates["whole_seconds"].median())
    assert told["p95"] is None  # no step of four is the slowest twentieth of them
    ends = (format_seconds(rates["whole_seconds"].agg(end)) for end in ("min", "max"))
    spread = f"median 47.2 ms, all of the 4 averaged between {' and '.join(ends)}"
    assert told["spread"] == spread
    assert f"40 of them printed, {spread}" in shown(run, 400)


def test_records_without_a_step_number_are_never_called_steps(tmp_path: Path) -> None:
    log = tmp_path / "hf.log"
    losses = ["1.5", "1.4", "nan", "nan"]
    text = "[2024-03-15 13:0%d:00,000] [INFO] {'loss': %s, 'learning_rate': 0.1, 'epoch': 0.%d}\n"
    log.write_text("".join(text % (n, loss, n) for n, loss in enumerate(losses)))
    run = load(log)
    told = document(run)
    assert told["meta"]["counted_steps"] is True
    assert (told["steps"]["rows"], told["steps"]["first"], told["steps"]["last"]) == (4, None, None)
    assert told["steps"]["seconds"] is None  # a minute a record is not a minute a step
    found = next(finding for finding in told["findings"] if finding["rule"] == "nan-loss")
    assert found["title"] == "The loss is not finite at record 3"
    assert found["steps"] is None
    said = shown(run, 400)
    assert "4 records, of which steps is unknown" in said
    assert not re.search(r"\bsteps? \d", said)


TEN = (
    *VARIED, "zero3_0.19.8", "straggler_0.16.9", "slow_data_0.19.8", "memory_breakdown_0.19.8",
    "deepspeed_pipeline_2023",
)  # fmt: skip


def rows_of(text: str, section: str) -> list[str]:
    """A heading and the lines that stand under it."""
    found = re.search(rf"^{section}( .*)?\n(.+\n)*", text, re.MULTILINE)
    return found[0].splitlines() if found else [""]


@pytest.mark.parametrize("name", TEN)
def test_the_document_has_every_number_of_the_terminal(sample_run: Sample, name: str) -> None:
    run = sample_run(name)
    told, text = json.loads(json.dumps(document(run), allow_nan=False)), shown(run, 400)
    steps, verdict = told["steps"], told["verdict"]
    assert text.startswith(f"{verdict['title']}\n")
    if verdict["seconds_per_step"] is not None and verdict["rule"] not in UNPRICED:
        assert f"Cost      {format_seconds(verdict['seconds_per_step'])} of " in text
    if verdict["gain"] is not None:
        assert f"Gain      up to {format_seconds(verdict['gain'][1])} of " in text
    head, *rows = rows_of(text, "Where a step goes")
    assert len([row for row in rows if "≥ is" not in row]) == len(steps["parts"])
    assert not rows or f"{format_seconds(steps['seconds'])}, " in head
    for row, part in zip(rows, steps["parts"], strict=False):
        assert format_seconds(part["seconds"]) in row
        assert "<0.1 %" in row or format_share(part["share"]) in row
        assert row.rstrip().endswith(part["phase"])
        assert ("≥" in row) is part["at_least"]
    facts = {line.split()[0]: line for line in rows_of(text, "Run")[1:]}
    if steps["rows"]:
        assert f"{steps['last']:,}, {steps['rows']:,} of them printed" in facts["Steps"]
    if steps["spread"]:
        assert f"median {format_seconds(steps['median'])}, " in steps["spread"]
        assert steps["spread"] in facts["Steps"]
    if steps["skipped"]:
        assert f"{steps['skipped']:,} skipped" in facts["Steps"]
    if steps["samples_per_second"]:
        assert f"{format_count(steps['samples_per_second'])} samples/s" in facts["Speed"]
    assert ("Loss" in facts) is (steps["loss"] is not None)
    assert f"\nRead   {count_of(told['coverage']['lines'], 'line')}" in text
    assert text.count("\nProblems   ") == bool(told["problems"])
    assert f"\nProblems   {len(told['problems'])}\n" in text or not told["problems"]
    silent = sum(int(n) for n in re.findall(r"^  (?:and )?(\d+) rules?", text, re.MULTILINE))
    assert silent == len(told["abstentions"])


#: Findings whose seconds are not a cost: see `test_a_healthy_run_costs_nothing...`.
UNPRICED = ("healthy", "unaccounted-time")


def test_numbers_that_are_none_become_null() -> None:
    odd = {"a": float("nan"), "b": np.int64(3), "c": pd.NA, "d": (float("inf"), pd.NaT, None, True)}
    assert to_json(odd) == {"a": None, "b": 3, "c": None, "d": [None, None, None, True]}
    assert to_json(pd.Timestamp("2023-03-15T13:21:52Z")) == "2023-03-15T13:21:52+00:00"


OPEN = ("meta", "config", "steps.classes", "steps.bound", "coverage.patterns")
JSON_TYPES = {
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "list": (list,),
    "object": (dict,),
    "finding": (dict,),
    "any": (object,),
}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a document as docs/json.md writes it, and its value."""
    if isinstance(value, dict):
        for key, each in value.items():
            name = "*" if path in OPEN else key
            yield from leaves(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for each in value:
            yield from leaves(each, f"{path}[]")
    else:
        yield path, value


def documented() -> dict[str, tuple[type, ...]]:
    text = (Path(__file__).parent.parent / "docs" / "json.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z ]+) \|", text, re.MULTILINE)
    return {key: sum((JSON_TYPES[t] for t in kind.split(" or ")), ()) for key, kind in rows}


def test_every_key_of_the_document_is_described_with_its_type(
    sample_run: Sample, tmp_path: Path
) -> None:
    described = documented()
    seen: set[str] = set()
    runs = {name: sample_run(name) for name in VARIED}
    for name, text in (("trainer", TRAINER), ("bar", BAR)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        runs[name] = load(tmp_path / name)
    for name, run in runs.items():
        for key, value in leaves(document(run) | {"verdict": None}):
            if key.startswith(("meta.*", "config.*")):
                key = key[: key.index("*") + 1]  # noqa: PLW2901
            elif value == []:
                seen |= (
                    {k for k in described if k.startswith(f"{key}[]")} if key in LISTS else {key}
                )
                continue
            assert key in described, f"{name}: {key} is not in docs/json.md"
            wanted = described[key]
            assert isinstance(value, wanted), f"{name}: {key} is {value!r}"
            assert not (isinstance(value, bool) and bool not in wanted and object not in wanted)
            seen.add(key)
    assert set(described) - seen - {"findings[]", "coverage"} == set()


#: The Trainer's last record, of two ranks.
TRAINER = """{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 1.0}
{'train_runtime': 198.0, 'train_samples_per_second': 30.0, 'train_steps_per_second': 0.4}
{'train_runtime': 200.0, 'train_samples_per_second': 32.0, 'train_steps_per_second': 0.5}
"""
BAR = """ 10%|█         | 10/101 [00:20<03:02,  2.00s/it]
 99%|█████████▉| 100/101 [03:20<00:02,  2.00s/it]
"""


def test_what_the_trainer_says_of_the_whole_training_is_shown(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(TRAINER, encoding="utf-8")
    said = " ".join(shown(load(tmp_path / "run.log")).split())
    assert "training took 3 min 20 s, 32 samples/s, 0.500 steps/s" in said


def test_a_bar_tells_how_fast_its_loop_turns_where_nothing_else_does(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(BAR, encoding="utf-8")
    said = " ".join(shown(load(tmp_path / "run.log")).split())
    assert "100 of 101 turns in 3 min 20 s, lately 2.00 s each" in said
    assert "whether a turn is an optimizer step is not said" in said


def test_a_turn_takes_what_the_bar_says_and_not_what_came_before_the_first_one(
    tmp_path: Path,
) -> None:
    bar = "Iteration:   0%|          | 34/84829 [01:22<4:46:08,  5.00it/s]\n"
    (tmp_path / "run.log").write_text(bar, encoding="utf-8")
    said = " ".join(shown(load(tmp_path / "run.log")).split())
    assert "34 of 84,829 turns in 82.0 s, lately 200 ms each" in said


def test_a_skip_that_one_line_tells_of_is_told_without_a_counter(tmp_path: Path) -> None:
    said = (
        "[2023-02-28 20:08:24,338] [INFO] [stage_1_and_2.py:1769:step] [deepspeed] OVERFLOW! "
        "Rank 0 Skipping step. Attempted loss scale: 64.0, reducing to 32.0\n"
    )
    (tmp_path / "run.log").write_text(said, encoding="utf-8")
    facts = rows_of(shown(load(tmp_path / "run.log")), "Run")
    assert "Steps 1 skipped (overflow)" in [" ".join(fact.split()) for fact in facts]


def test_frameworks_and_layouts_are_written_as_people_write_them(tmp_path: Path) -> None:
    banner = "  Gradient Accumulation steps = 1\n"
    (tmp_path / "run.log").write_text(banner + TRAINER, encoding="utf-8")
    facts = rows_of(shown(load(tmp_path / "run.log")), "Run")
    assert " ".join(facts[1].split()) == "Job Hugging Face Trainer (by its log lines)"
    assert " ".join(facts[2].split()) == "Layout 1 micro-batch a step"


def test_hosts_are_those_stated_and_of_those_that_only_print_the_least_there_are() -> None:
    assert on_hosts({"nodes": 1, "hosts": ["a"]}) == "on 1 host"
    assert on_hosts({"recordings": [{}, {}], "hosts": ["a", "b"]}) == "on 2 hosts"
    assert on_hosts({"hosts": ["a", "b"]}) == "on at least 2 hosts"
    assert on_hosts({"hosts": ["a"]}) == on_hosts({}) == ""


def test_the_clock_that_is_furthest_off_is_named_and_by_how_much() -> None:
    clocks = {"a": {"ahead": 0.0, "error": 0.0}, "b": {"ahead": -0.35, "error": 0.002}}
    said = "b's is 350 ms behind a's, give or take 2.00 ms"
    assert of_clocks({"clocks": clocks}) == said
    clocks["c"] = {"ahead": 0.1, "error": 0.002}
    assert of_clocks({"clocks": clocks}) == f"{said}; others of 3 hosts less"
    assert of_clocks({}) == ""


def test_a_task_that_srun_labels_is_no_host(tmp_path: Path) -> None:
    said = "Profile Summary at step 2:\n0: world size:        128\n"
    head = "-------------------------- DeepSpeed Flops Profiler --------------------------"
    (tmp_path / "run.log").write_text(f"0: {head}\n0: {said}", encoding="utf-8")
    run = load(tmp_path / "run.log")
    assert "hosts" not in run.meta
    assert "Layout 128 ranks" in " ".join(shown(run).split())
    assert "host" not in shown(run).partition("Layout")[2].partition("\n")[0]


#: Lists of objects that a run may leave empty.
LISTS = (
    *("findings", "findings[].evidence", "findings[].advice", "abstentions"),
    *("problems", "repairs", "coverage.shapes", "steps.phases", "steps.parts"),
)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("file", "pieces", "drawn"),
    [(Terminal, 70, True), (Terminal, 3, False), (StringIO, 70, False)],
)
def test_a_bar_is_drawn_for_long_reads_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, file: type[StringIO], pieces: int, drawn: bool
) -> None:
    errors = file()
    monkeypatch.setattr("sys.stderr", errors)
    with reading(100 << 20) as progress:
        for _ in range(pieces):
            progress(1 << 20)
    assert ("reading" in errors.getvalue()) is drawn


_STEP_LINE = (
    "[2023-04-21 19:36:50,423] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, "
    "lr=[1e-05], mom=[(0.9, 0.95)]\n"
)


_CURRENT = (
    "[2023-04-21 19:36:50,424] [INFO] [timer.py:199:stop] epoch=0/micro_step=9/global_step={step}, "
    "RunningAvgSamplesPerSec=4.5, CurrSamplesPerSec=4.75, MemAllocated=31.36GB, "
    "MaxMemAllocated=36.97GB\n"
)
_SO_FAR = (
    "[2022-03-11 02:06:58,985] [INFO] [timer.py:189:stop] 0/{step}, SamplesPerSec=83.5, "
    "MemAllocated=0.26GB, MaxMemAllocated=9.02GB\n"
)


@pytest.mark.parametrize(
    ("line", "told"),
    [(_CURRENT, "4.75 samples/s"), (_SO_FAR, "83.5 samples/s since the start")],
)
def test_a_rate_is_told_where_no_step_can_be_timed(tmp_path: Path, line: str, told: str) -> None:
    text = "".join((_STEP_LINE + line).format(step=step) for step in (40, 50))
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    said = " ".join(shown(load(tmp_path / "run.log")).split())
    assert f"Speed {told}" in said
