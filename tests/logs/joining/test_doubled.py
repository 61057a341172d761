"""Lines that stand in a log several times are read once; lines that are only alike all count."""

from __future__ import annotations

from typing import Any

import pytest

from dsprof.logs.scanning import records
from dsprof.run import from_events
from tests.logs.reading import read

Lines = list[str]


def log_of(count: int = 12, *, stamped: bool = True, slower: float = 0.0, rank: str = "0") -> Lines:
    lines = []
    for step in range(1, count + 1):
        at = f"[2024-03-15 13:21:{step:02d},800] [INFO] [logging.py:96:log_dist] "
        prefix = f"{at if stamped else ''}[Rank {rank}] "
        lines += [
            f"{prefix}step={step}, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]",
            f"{prefix}time (ms) | fwd: {10 + step + slower:.2f} | bwd: 20.50 | step: 1.25",
        ]
    return lines


def said(lines: Lines) -> list[dict[str, Any]]:
    """The events of a log, without where they stand."""
    found: list[dict[str, Any]] = read("\n".join([*lines, ""]).encode()).events.to_pylist()
    return [{k: v for k, v in row.items() if k not in ("line", "record")} for row in found]


ONCE = log_of()


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([line for line in ONCE for _ in range(2)], id="each-line-twice"),
        pytest.param([line for line in ONCE for _ in range(3)], id="each-line-three-times"),
        pytest.param([*ONCE, *ONCE], id="copies-behind-one-another"),
        pytest.param(
            [line for at in range(0, len(ONCE), 4) for line in ONCE[at : at + 4] * 2],
            id="handlers-that-buffer",
        ),
    ],
)
def test_what_is_there_several_times_is_read_once(lines: Lines) -> None:
    assert said(lines) == said(ONCE)


def test_a_copy_may_lack_its_beginning() -> None:
    once = log_of(48)
    assert said([*once, *once[5:]]) == said(once)


@pytest.mark.parametrize("stamped", [True, False])
def test_timers_tell_copies_by_themselves(stamped: bool) -> None:
    once = log_of(stamped=stamped)
    assert said([*once, *once]) == said(once)


@pytest.mark.parametrize("twice", [True, False])
def test_timers_that_no_mark_numbers_are_read_once(twice: bool) -> None:
    once = log_of(stamped=False)[1::2]
    assert said([line for line in once for _ in range(2)] if twice else [*once, *once]) == said(
        once
    )


def test_timers_that_no_mark_numbers_may_read_the_same_in_each_step() -> None:
    """As those of a timer that runs around nothing do."""
    lines = ["[Rank 0] time (ms) | fwd: 10.00 | bwd: 20.50 | step: 1.25"] * 12
    assert len({row["step"] for row in said(lines)}) == 12


def test_lines_without_a_time_beside_some_that_have_one_are_read_once() -> None:
    """A pipeline's engine prints both at each step."""
    marks = log_of()[::2]
    told = [f"steps: {n} loss: 2.5 iter time (s): 0.5 samples/sec: 8.0" for n in range(1, 13)]
    once = [line for pair in zip(marks, told, strict=True) for line in pair]
    assert said([line for line in once for _ in range(2)]) == said(once)


def test_some_timers_of_few_digits_may_read_the_same() -> None:
    """ZeRO-3 prints that of its optimizer alone."""
    updates = [f"[Rank 0] time (ms) | optimizer_step: 5.1{n % 4}" for n in range(12)]
    once = [line for n in range(12) for line in (*ONCE[2 * n : 2 * n + 2], updates[n])]
    assert said([line for line in once for _ in range(2)]) == said(once)


def test_the_run_says_what_was_left_out() -> None:
    log = read("\n".join([line for line in ONCE for _ in range(2)]).encode())
    run = from_events(log.events.to_pandas(), meta=log.meta)
    found = run.repairs.set_index("name").loc["doubled-lines"]
    assert (found["kind"], found["rows"], found["line"]) == ("repair", 24, 2)
    assert run.steps["engine"].eq(0).all()
    assert run.steps["step"].to_list() == list(range(1, 13))


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(ONCE, id="once"),
        pytest.param(
            [line for pair in zip(log_of(), log_of(slower=7.0), strict=True) for line in pair],
            id="engines-in-turns",
        ),
        pytest.param(
            [line for pair in zip(log_of(), log_of(rank="1"), strict=True) for line in pair],
            id="ranks",
        ),
        pytest.param([*log_of(stamped=False)[::2]] * 2, id="launches-without-time-or-timers"),
        pytest.param([*ONCE, *log_of(slower=0.5)], id="launches-of-one-minute"),
        pytest.param([*ONCE, *ONCE[:4]], id="a-few-lines"),
    ],
)
def test_what_is_alike_is_not_taken_for_the_same(lines: Lines) -> None:
    log = read("\n".join(lines).encode())
    assert log.meta["doubled"] == ()


def test_of_calls_that_are_alike_every_second_one_counts() -> None:
    call = (
        "[2024-03-15 13:21:01,900] [INFO] [logging.py:96:log_dist] [Rank 0] comm op: all_reduce | "
        "time (ms): 1.25 | msg size: 1.0 MB | algbw (Gbps): 6.71 | busbw (Gbps): 6.71"
    )
    once = [*ONCE[:2], call, call, *ONCE[2:]]
    twice = [line for line in once for _ in range(2)]
    assert said(twice) == said(once)
    assert sum(row["kind"] == "comm" for row in said(once)) >= 2


def test_copies_are_told_from_whatever_batches_they_were_read_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch lacks the columns, such as bytes, that none of its records has."""
    monkeypatch.setattr(records, "_BATCH", 1)
    memory = "MA 0.24 GB         Max_MA 0.24 GB         CA 0.24 GB         Max_CA 0 GB "
    text, other = "\n".join([*ONCE, ""]).encode(), f"{memory}\nepoch 2\n".encode()
    log = read(text + other + text, [len(text)])
    lines, first = text.count(b"\n"), (text + other).count(b"\n") + 1
    ((_, left_out),) = log.meta["doubled"]
    assert left_out.tolist() == [*range(first, first + lines)]
