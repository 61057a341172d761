"""Which function ran at most looks, worked out by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dsprof.analysis.looks import Code, code_at
from tests.findings.plants import Row, metric, run_of

SLEEP = "sleep_a_bit (numpy/pauses.py)"
SCORE, MAIN = "score (./train.py:30)", "<module> (./train.py:99)"


def looks(count: int, stack: str | None, place: str = "step/looks_after", **more: Any) -> Row:
    name = place.rpartition("/")[2]
    return metric(name, None, None, raw=place, count=count, text=stack, **more)


def told(*rows: Row) -> pd.DataFrame:
    return run_of(rows).told


def named(*seen: tuple[int, str | None]) -> tuple[str, int, int] | None:
    code = code_at(told(*(looks(*one) for one in seen)), "step")
    return None if code is None else (code.name, code.seen, code.looks)


def stack(*frames: str) -> str:
    return " < ".join(frames)


def test_the_innermost_function_of_most_looks_is_named() -> None:
    assert named((40, stack(SCORE, MAIN)), (3, stack("log (./train.py:50)", MAIN))) == (
        "score (train.py:30)", 40, 43,
    )  # fmt: skip


def test_of_a_function_that_many_lines_were_seen_of_no_line_is_told() -> None:
    lines = [(7, f"score (./train.py:{line})") for line in range(30, 36)]
    assert named(*lines, (9, "score (./train.py:40)")) == ("score (train.py)", 51, 51)


def test_what_calls_many_functions_is_named_by_the_line_of_the_call() -> None:
    seen = [
        (8, stack(f"part_{n} (./parts.py:{n})", "score (./train.py:30)", MAIN)) for n in range(6)
    ]
    assert named(*seen) == ("score (train.py:30)", 48, 48)


def test_the_script_that_calls_all_that_runs_says_nothing() -> None:
    assert named(*[(8, stack(f"part_{n} (./parts.py:{n})", MAIN)) for n in range(6)]) is None


def test_a_script_that_runs_by_itself_is_named_by_its_line() -> None:
    assert named((30, MAIN)) == ("train.py:99", 30, 30)


def test_a_function_of_a_library_is_told_with_the_job_s_own_that_calls_it() -> None:
    code = code_at(told(looks(30, stack(SLEEP, SCORE, MAIN))), "step")
    assert code is not None
    assert (code.function, code.file, code.line) == ("sleep_a_bit", "numpy/pauses.py", 0)
    assert code.caller == "score (train.py:30)"
    own = code_at(told(looks(30, stack(SCORE, MAIN))), "step")
    assert own is not None
    assert not own.caller


def test_a_function_of_a_trainer_that_the_script_has_begun_is_named_itself() -> None:
    trainer = stack("Trainer.log (transformers/trainer.py:2257)", "Trainer.train (t/t.py:9)", MAIN)
    assert named((30, trainer)) == ("Trainer.log (transformers/trainer.py:2257)", 30, 30)


@pytest.mark.parametrize(("seen", "is_named"), [((5, 0), True), ((6, 4), False), ((60, 40), True)])
def test_few_looks_name_nothing_that_chance_may_show(
    seen: tuple[int, int], *, is_named: bool
) -> None:
    often, seldom = seen
    found = named((often, SCORE), (seldom, "log (./train.py:50)"))
    assert (found is not None) == is_named


def test_what_waits_for_workers_of_a_loader_is_not_named() -> None:
    waits = stack(
        "wait (multiprocessing/connection.py)",
        "_MultiProcessingDataLoaderIter._try_get_data (torch/utils/data/dataloader.py)",
        "_MultiProcessingDataLoaderIter._next_data (torch/utils/data/dataloader.py)",
        MAIN,
    )
    assert named((50, waits)) is None


def test_stacks_that_were_not_kept_are_looks_too() -> None:
    assert named((30, SCORE), (40, None)) is None
    assert named((30, SCORE), (4, None)) == ("score (train.py:30)", 30, 34)


def test_a_place_is_behind_one_phase_or_in_one() -> None:
    rows = told(
        looks(30, SCORE),
        looks(300, "clip (./train.py:60)", "backward/looks_after"),
        looks(30, "__getitem__ (./data.py:5)", "data/looks"),
    )

    def at(phase: str, *, inside: bool = False) -> str:
        code = code_at(rows, phase, inside=inside)
        assert code is not None
        return code.function

    assert at("step") == "score"
    assert at("backward") == at("") == "clip"
    assert at("", inside=True) == "__getitem__"
    assert code_at(rows, "forward") is None


def test_of_some_ranks_or_the_time_behind_a_moment_only_their_looks_count() -> None:
    early, late = pd.Timestamp("2026-01-01 10:00"), pd.Timestamp("2026-01-01 11:00")
    rows = told(
        looks(30, SCORE, rank=0, at=early), looks(90, "log (./train.py:50)", rank=1, at=late)
    )

    def function(**which: Any) -> str | None:
        code: Code | None = code_at(rows, "step", **which)
        return code.function if code else None

    assert function() == "log"
    assert function(ranks=(0,)) == "score"
    assert function(since=late) == "log"
    assert function(ranks=(0,), since=early) == "score"
    assert function(ranks=(0,), since=late) is None


@pytest.mark.parametrize("text", ["", "garbage", "f", "f a.py", "f a.py:x", " < ", "f :3"])
def test_a_text_that_is_no_stack_names_nothing(text: str) -> None:
    assert named((50, text)) is None


def test_looks_that_saw_nothing_are_told_apart() -> None:
    code = code_at(told(looks(30, SCORE), looks(4, None), looks(3, "log (./train.py:50)")), "step")
    assert code is not None
    assert (code.seen, code.unknown, code.looks) == (30, 4, 37)


@pytest.mark.parametrize("folder", ["./a (b)", "/home/u/c:4", "./ (x:3)"])
def test_the_path_of_a_file_may_hold_what_else_ends_it(folder: str) -> None:
    code = code_at(told(looks(30, f"A.b.<locals>.<lambda> ({folder}/c.py:12)")), "step")
    assert code is not None
    assert (code.function, code.file, code.line) == ("A.b.<locals>.<lambda>", f"{folder}/c.py", 12)


def test_a_text_that_is_longer_than_any_stack_is_not_read() -> None:
    assert named((50, stack(*[SCORE] * 2_500))) is None
    assert named((50, f"{'f' * 5_000} (./a.py:1)")) is None
