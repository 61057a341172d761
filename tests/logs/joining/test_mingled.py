"""Sources that hold lines of two jobs."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from dsprof import logs
from dsprof.errors import DsprofError

LINE = (
    "[2024-05-01 10:{0:02d}:{1:02d},000] [INFO] [logging.py:96:log_dist] [Rank 0] "
    "step={2}, skipped=0, lr=[1e-05]"
)


def steps_of(label: str, second: int, rank: int = 0) -> list[str]:
    lines = (LINE.format(step, second, 10 * step) for step in range(1, 9))
    return [f"{label}{line}\n".replace("Rank 0", f"Rank {rank}") for line in lines]


def by_turns(*jobs: list[str]) -> str:
    return "".join(chain.from_iterable(zip(*jobs, strict=True)))


def by_two_names(one: str, other: str, second: int) -> str:
    lines = zip(steps_of(one, second), steps_of(other, second), strict=True)
    return "".join(pair[n % 2] for n, pair in enumerate(lines))


#: Where rank 0 of a job is in each of its launches, that all begin anew.
HOPS = list(enumerate("ababab"))


@pytest.mark.parametrize(
    ("one", "other"), [("job-a: ", "job-b: "), ("0: ", "1: "), ("a-1  | ", "a-2  | ")]
)
def test_two_jobs_that_print_into_one_file_by_turns_are_refused(
    tmp_path: Path, one: str, other: str
) -> None:
    (log := tmp_path / "run.log").write_text(by_turns(steps_of(one, 5), steps_of(other, 40)))
    with pytest.raises(DsprofError, match="holds two jobs: rank 0 of "):
        logs.read([log])


@pytest.mark.parametrize(
    "text",
    [
        by_turns(steps_of("job-a: ", 5), steps_of("job-b: ", 40, rank=8)),
        by_turns(steps_of("job-a: ", 5), steps_of("localhost: ", 5)),
        "".join(steps_of("job-a: ", 5) + steps_of("job-b: ", 40)),
        "".join(chain.from_iterable(steps_of(f"job-{host}: ", 5 * n) for n, host in HOPS)),
        by_two_names("job-a: ", "10.42.3.0: ", 5) + by_two_names("10.42.3.0: ", "job-a: ", 40),
    ],
    ids=["another rank", "printed twice", "one behind the other", "restarts", "by two names"],
)
def test_one_job_under_two_names_is_read(tmp_path: Path, text: str) -> None:
    (log := tmp_path / "run.log").write_text(text)
    assert logs.read([log]).events.num_rows
