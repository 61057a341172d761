"""Files of different jobs are told apart, and none is a part of another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dsprof.logs.columns.clocks import UNKNOWN
from dsprof.logs.placing.jobs import Told, jobs_of
from dsprof.logs.placing.several import Extent
from dsprof.logs.sources.source import named
from dsprof.run import load
from tests.loaded import SAMPLES

NOTHING = np.zeros(0, np.int64)


def told(
    name: str, begin: int = UNKNOWN, end: int = UNKNOWN, steps: int = 0, **settings: float
) -> Told:
    """What a file tells that marks `steps`, with the last of its digits as its rank."""
    numbers = np.arange(1, steps + 1)
    who = frozenset([(int(name[-1]), None)]) if steps else frozenset[tuple[int, None]]()
    times = np.linspace(begin, end, steps).astype(np.int64) if begin != UNKNOWN else numbers * 0
    times = times if begin != UNKNOWN else np.full(steps, UNKNOWN)
    extent = Extent(begin, end, numbers, times, False, who, frozenset([1] if steps else []))
    values = {setting: frozenset([value]) for setting, value in settings.items()}
    return Told(named(name).family, values, extent, 10)


def test_nothing_that_differs_is_one_job() -> None:
    files = [told("a0", steps=4, world_size=2), told("b1", steps=4), told("c2", world_size=2)]
    assert jobs_of(files) == ([[0, 1, 2]], "")


@pytest.mark.parametrize("setting", ["world_size", "zero_stage", "parameters", "train_batch_size"])
def test_another_value_of_a_setting_is_another_job(setting: str) -> None:
    files, why = jobs_of([told("a0", **{setting: 2}), told("b0", steps=4, **{setting: 4})])
    assert files == [[1], [0]]
    assert why == f"{setting} is 2 in one and 4 in another"


def test_engines_that_are_told_different_values_in_one_file_are_of_one_job() -> None:
    both = told("a0", zero_stage=3)
    both.settings["zero_stage"] |= frozenset([0])  # type: ignore[index]
    assert len(jobs_of([both, told("b1", zero_stage=0)]).files) == 1


def test_files_of_ranks_follow_the_one_that_tells_the_settings() -> None:
    files = [told(f"{job}/x_rank{rank}", steps=3) for job in "ab" for rank in range(3)]
    files[0] = told("a/x_rank0", steps=3, world_size=3)
    files[3] = told("b/x_rank0", steps=3, world_size=6)
    assert jobs_of(files).files == [[0, 1, 2], [3, 4, 5]]


def test_a_file_without_settings_goes_with_the_job_beside_which_it_was_written() -> None:
    first, second = told("a0", 0, 90, 5, world_size=2), told("b0", 100, 200, 9, world_size=4)
    files = [first, second, told("errors", 110, 120), told("notes", 300, 310), told("other")]
    assert jobs_of(files).files == [[1, 2], [0], [3], [4]]


def test_restarts_with_the_same_settings_are_of_one_job_beside_another() -> None:
    same = {"world_size": 4.0, "zero_stage": 1.0, "train_batch_size": 8.0}
    files = [told("a0", 0, 90, 5, **same), told("b0", 100, 200, 9, **same)]
    files.append(told("c0", 300, 400, 3, **same | {"zero_stage": 3.0}))
    assert jobs_of(files).files == [[0, 1], [2]]


def test_a_job_that_goes_on_with_fewer_ranks_is_one() -> None:
    first = told("attempt_0/rank0", 0, 90, 120, world_size=16)
    again = told("attempt_1/rank0", 100, 200, 150, world_size=8)
    on = again._replace(extent=replace(again.extent, steps=again.extent.steps[100:]))
    assert jobs_of([first, on]).files == [[0, 1]]
    assert len(jobs_of([first, again]).files) == 2  # another one, from its first step
    before = on._replace(extent=replace(on.extent, begin=-200, end=-100))
    assert len(jobs_of([first, before]).files) == 2
    small, large = ({"parameters": frozenset([value])} for value in (7.0, 9.0))
    assert len(jobs_of([first._replace(settings=small), on._replace(settings=large)]).files) == 2


def test_a_rank_that_tells_the_same_steps_in_two_files_is_of_two_jobs() -> None:
    files, why = jobs_of([told("a0", steps=4), told("b0", steps=4), told("c1", steps=4)])
    assert files[0] != files[1]
    assert "same steps" in why


def test_of_several_jobs_one_is_read_and_the_others_are_named() -> None:
    paths = [SAMPLES / f"{name}_0.19.8.log" for name in ("zero1_accumulation", "zero3")]
    run, alone = load(paths), load(paths[0])
    assert run.told["source"].unique().tolist() == [str(paths[0])]
    assert run.meta["sources"] == [str(paths[0])]
    assert run.meta["jobs"] == [[str(path)] for path in paths]
    assert run.inputs == [str(path) for path in paths]
    assert run.config == alone.config
    assert [found.title for found in run.findings] == [found.title for found in alone.findings]
    assert run.coverage.lines == alone.coverage.lines


def test_a_folder_of_samples_is_many_jobs(tmp_path: Path) -> None:
    for name in ("zero0", "zero3", "pipeline"):
        (tmp_path / f"{name}.log").symlink_to(SAMPLES / f"{name}_0.19.8.log")
    run = load(tmp_path)
    assert len(run.meta["jobs"]) == 3
    assert run.told["source"].nunique() == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x/log_rank0.log", "x/log_rank13.log"),
        ("worker-0_rank1.log", "worker-3_rank25.log"),
        ("node0_stdout.txt", "node1_stdout.txt"),
        ("ip-10-0-0-1.log", "ip-10-0-0-2.log"),
        ("10.0.0.1.log", "10.0.0.2.log"),
    ],
)
def test_names_of_ranks_and_hosts_of_a_job_are_one_family(one: str, other: str) -> None:
    assert named(one).family == named(other).family


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a/rank0.log", "b/rank0.log"),
        ("zero1_rank0.log", "zero3_rank0.log"),
        ("zero1-node0.log", "zero3-node0.log"),
        ("slurm-1.out", "slurm-2.out"),
    ],
)
def test_names_of_other_jobs_are_other_families(one: str, other: str) -> None:
    assert named(one).family != named(other).family
