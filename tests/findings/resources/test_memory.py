"""Memory: how full, whether it grows, what the allocator pays."""

from __future__ import annotations

import random

import pytest

from dsprof.events import Severity
from tests.findings.plants import (
    WELL,
    alone,
    config,
    memory,
    metric,
    problem,
    quiet,
    run_of,
    steps,
    why,
)
from tests.loaded import run_of_text

GIB = 1 << 30
#: What a log knows of a card, it knows from the message that it is full.
CARD = problem("oom", "GPU 0 has a total capacity of 80.00 GiB of which 1 GiB is free.", rank=0)


def test_a_card_that_is_93_percent_full_is_a_warning() -> None:
    rows = [memory("max_reserved", 3, bytes=74.4 * GIB), memory("allocated", 3, bytes=60 * GIB)]
    found = alone(run_of([*steps(3, WELL), *rows, CARD]), "memory-pressure")
    assert found.severity is Severity.WARNING
    assert found.title == "GPU memory is 93 % full"
    assert found.ranks == (0,)
    assert "The next longer batch may not fit" in found.summary


def test_the_cache_of_the_allocator_is_room_for_a_longer_batch() -> None:
    rows = [memory("max_reserved", 3, bytes=75 * GIB), memory("max_allocated", 3, bytes=60 * GIB)]
    found = alone(run_of([*steps(3, WELL), *rows, CARD]), "memory-pressure")
    assert "Tensors took 60.0 GiB of that at most: the rest is the allocator's cache" in (
        found.summary
    )
    assert "may not fit" not in found.summary


def test_a_gaudi_that_its_trainers_dicts_show_nearly_full_is_told() -> None:
    said = "{'loss': 2.5, 'epoch': 0.%d, 'memory_allocated (GB)': 65.5, "
    said += "'max_memory_allocated (GB)': 92.5, 'total_memory_available (GB)': 94.62}\n"
    found = alone(run_of_text("".join(said % n for n in (1, 2, 3))), "memory-pressure")
    assert found.title == "GPU memory is 98 % full"


def test_growing_host_memory_is_not_told_of_ranks_whose_gpu_memory_grows() -> None:
    rows = [
        memory(name, step, rank=rank, bytes=2 * GIB + step * more * GIB)
        for step in range(1, 61)
        for name, rank, more in (("host_process", 0, 0.2), ("allocated", 1, 0.1))
    ]
    found = alone(run_of([*steps(60, WELL), *rows]), "memory-growth")
    assert found.title.startswith("Host memory grows")
    assert found.ranks == (0,)


def test_97_percent_is_critical() -> None:
    run = run_of([*steps(3, WELL), memory("max_reserved", 3, bytes=78 * GIB), CARD])
    assert alone(run, "memory-pressure").severity is Severity.CRITICAL


def test_a_half_empty_card_is_no_finding() -> None:
    run = run_of([*steps(3, WELL), memory("max_reserved", 3, bytes=40 * GIB), CARD])
    assert quiet(run, "memory-pressure")


def test_a_card_of_unknown_size_is_not_judged() -> None:
    run = run_of([*steps(3, WELL), memory("max_reserved", 3, bytes=78 * GIB)])
    assert why(run, "memory-pressure") == "the memory of a GPU is not known"


def test_a_card_that_would_hold_more_than_it_has_is_not_the_one_whose_size_is_told() -> None:
    run = run_of([*steps(3, WELL), memory("max_reserved", 3, bytes=93 * GIB), CARD])
    assert why(run, "memory-pressure") == (
        "a peak is more than the GPU has whose memory is told: that is another one"
    )


def test_a_full_host_is_found_from_its_percentage() -> None:
    run = run_of([*steps(3, WELL), memory("host_percent", 3, value=95.0)])
    assert alone(run, "memory-pressure").title == "Host memory is 95 % full"


def growing(per_step: float, count: int = 60) -> list[dict[str, object]]:
    return [memory("allocated", s, bytes=10 * GIB + s * per_step) for s in range(1, count + 1)]


def test_memory_that_rises_through_the_run_is_growth() -> None:
    found = alone(run_of(steps(60, WELL) + growing(0.1 * GIB)), "memory-growth")
    # medians of the first and the last tenth: steps 3.5 and 57.5
    assert found.title == "GPU memory grows by 5.40 GiB between steps 1 and 60"
    assert found.steps == (1, 60)


def test_a_process_that_grows_is_host_memory_of_its_rank() -> None:
    rows = [memory("host_process", s, bytes=2 * GIB + s * 0.1 * GIB) for s in range(1, 61)]
    found = alone(run_of(steps(60, WELL) + rows), "memory-growth")
    assert found.title == "Host memory grows by 5.40 GiB between steps 1 and 60"
    assert found.ranks == (0,)


def test_memory_that_grows_comes_before_a_step_that_takes_as_badly_longer() -> None:
    rows = steps(60, WELL, None) + growing(0.1 * GIB)
    rows += [metric("step_seconds", step, 1.0 if step < 30 else 1.15) for step in range(1, 61)]
    loud = [one.rule for one in run_of(rows).findings if one.severity is Severity.WARNING]
    assert loud.index("memory-growth") < loud.index("slowdown")


@pytest.mark.parametrize("per_step", [0.0, 0.001 * GIB])
def test_steady_memory_is_no_growth(per_step: float) -> None:
    assert quiet(run_of(steps(60, WELL) + growing(per_step)), "memory-growth")


def test_memory_that_went_up_once_is_no_growth() -> None:
    rows = [memory("allocated", s, bytes=(10 if s < 30 else 20) * GIB) for s in range(1, 61)]
    assert quiet(run_of(steps(60, WELL) + rows), "memory-growth")


def test_alternating_moments_of_a_step_are_no_growth() -> None:
    rows = [memory("allocated", s, bytes=x * GIB) for s in range(1, 61) for x in (5, 20)]
    assert quiet(run_of(steps(60, WELL) + rows), "memory-growth")


def test_a_warning_of_growth_needs_20_steps_and_a_note_12() -> None:
    found = {
        count: alone(run_of(steps(count, WELL) + growing(0.2 * GIB, count)), "memory-growth")
        for count in (12, 19, 20)
    }
    severities = [found[count].severity for count in (12, 19, 20)]
    assert severities == [Severity.INFO, Severity.INFO, Severity.WARNING]
    run = run_of(steps(11, WELL) + growing(0.2 * GIB, 11))
    assert why(run, "memory-growth") == "memory was read at fewer than 12 steps"


def process(*mib: float) -> list[dict[str, object]]:
    rows = enumerate(mib, 1)
    return [memory("host_process", step, bytes=value * (1 << 20)) for step, value in rows]


def test_a_small_leak_that_never_stops_is_a_note() -> None:
    """50 MiB a step for 15 steps, of a process that began with 400."""
    rows = process(*(400 + 50 * step for step in range(15)))
    found = alone(run_of(steps(15, WELL) + rows), "memory-growth")
    assert found.severity is Severity.INFO
    assert "about 48.2 MiB per step" in found.summary  # medians of tenths lie within the ends
    assert found.summary.endswith(
        "If it goes on, it ends in an out-of-memory error: 15 readings cannot tell."
    )


@pytest.mark.parametrize(
    "mib",
    [
        [400 + 700 * (1 - 0.6**step) for step in range(15)],  # buffers and caches fill
        [400 + 50 * step for step in range(10)] + [860] * 5,
        [4000 + 12 * step for step in range(15)],
        [400 + 50 * step - 120 * (step % 4) for step in range(15)],
    ],
)
def test_memory_that_settles_or_wavers_or_hardly_grows_is_no_note(mib: list[float]) -> None:
    assert quiet(run_of(steps(15, WELL) + process(*mib)), "memory-growth")


def test_memory_that_wavers_by_chance_is_no_growth() -> None:
    """However much it does: of 3,600 orders of ten bands one rises eight times or more. Each of
    20 ranks wavers in its own way, and any that grew would be told of."""
    rows = []
    for rank in range(20):
        chance = random.Random(rank)
        for step in range(1, 21):
            size = (10 + 5 * chance.random()) * GIB
            rows.append(memory("allocated", step, bytes=size, rank=rank))
    run = run_of(steps(20, WELL) + rows)
    assert run.memory["rank"].nunique() == 20
    assert quiet(run, "memory-growth")


#: Steps without a time, so that nothing tells what a flush costs.
UNTIMED = [metric("loss", step, 2.0) for step in range(1, 41)]


def test_flushes_of_the_allocator_are_found() -> None:
    rows = [memory("cache_flushes", 7, count=3), memory("cache_flushes", 9, count=2)]
    found = alone(run_of(UNTIMED + rows), "allocator-thrash")
    assert found.severity is Severity.WARNING  # 2 of 40 steps
    assert "flushed its cache 5 times" in found.title
    assert found.steps == (7, 9)


def test_flushes_in_every_tenth_step_are_critical() -> None:
    rows = [memory("cache_flushes", s, count=1) for s in (1, 11, 21, 31)]
    found = alone(run_of(UNTIMED + rows), "allocator-thrash")
    assert found.severity is Severity.CRITICAL


def test_flushes_of_two_launches_are_of_the_steps_of_both() -> None:
    launch = [*UNTIMED, *(memory("cache_flushes", s, count=1) for s in range(1, 21))]
    run = run_of([*launch, *(row | {"segment": 1} for row in launch)])
    assert "in 50 % of the printed steps" in alone(run, "allocator-thrash").summary


def test_flushes_between_printed_steps_are_in_none_of_these() -> None:
    rows = [metric("step_seconds", step, 1.0, steps=10) for step in range(10, 201, 10)]
    flushes = [memory("cache_flushes", s, count=1) for s in range(1, 21)]
    found = alone(run_of([*rows, *flushes]), "allocator-thrash")
    assert "in 10 % of the printed steps" in found.summary


def test_one_flush_is_a_warning_however_few_steps_are_printed() -> None:
    found = alone(run_of([*UNTIMED[:5], memory("cache_flushes", 1, count=1)]), "allocator-thrash")
    assert found.severity is Severity.WARNING
    assert found.title.startswith("The allocator flushed its cache once")


def test_a_flush_in_far_more_than_a_hundred_printed_steps_is_a_note() -> None:
    losses = [metric("loss", step, 2.0) for step in range(1, 301)]
    flushes = [memory("cache_flushes", step, count=1) for step in (7, 8, 9)]
    found = alone(run_of([*losses, *flushes[:1]]), "allocator-thrash")
    assert found.severity is Severity.INFO
    assert found.title.endswith("its cache once in 300 printed steps: GPU memory was full then")
    often = alone(run_of([*losses, *flushes]), "allocator-thrash")
    assert often.severity is Severity.WARNING


def test_memory_without_flushes_is_no_finding() -> None:
    run = run_of([*steps(40, WELL), memory("allocated", 3, bytes=GIB)])
    assert quiet(run, "allocator-thrash")


def test_without_memory_lines_nothing_is_said() -> None:
    run = run_of(steps(40, WELL))
    assert why(run, "allocator-thrash") == "no memory line"
    assert why(run, "memory-pressure") == "no memory line"
    assert why(run, "memory-growth") == "no memory line"


def test_a_micro_batch_of_one_sample_is_not_to_be_smaller() -> None:
    flushes = [memory("cache_flushes", s, count=1) for s in (1, 11)]
    key = "train_micro_batch_size_per_gpu"

    def advised(size: int) -> list[tuple[str, str]]:
        run = run_of([*UNTIMED, *flushes, config("micro_batch_size", size)])
        found = alone(run, "allocator-thrash").advice
        return [(advice.now, advice.to) for advice in found if advice.setting == key]

    assert advised(4) == [("4", "2")]
    assert advised(1) == []


def test_a_device_that_all_processes_fill_is_told_by_primus_own_numbers() -> None:
    line = (
        "[20251202 09:12:08][rank-7/8][INFO ] [--------trainer.py:2560] :  iteration      {0}/  "
        "5000 | elapsed time per iteration (ms): 13372.8/13364.7 | hip mem usage/free/total/"
        "usage_ratio: 253.38GB/2.60GB/255.98GB/98.98% | lm loss: 6.5E-03 |\n"
    )
    found = alone(run_of_text(line.format(126), line.format(127)), "memory-pressure")
    assert found.title == "GPU memory is 99 % full"
    assert found.ranks == (7,)
