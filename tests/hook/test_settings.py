"""What DeepSpeed does at its defaults that costs time is told as the engine has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dsprof.hook.models.deepspeed import costly_defaults


def engine(**more: Any) -> SimpleNamespace:
    """As much of an engine as is asked; the throughput timer as DeepSpeed makes it by default."""
    timer = SimpleNamespace(config=SimpleNamespace(enabled=True, synchronized=True))
    return SimpleNamespace(
        **{
            "tput_timer": timer,
            "wall_clock_breakdown": lambda: False,
            "memory_breakdown": lambda: False,
            **more,
        }
    )


def test_the_throughput_timer_waits_at_deepspeed_s_defaults() -> None:
    assert costly_defaults(engine(), False, waits=True) == {
        "wall_clock_breakdown": 0,
        "memory_breakdown": 0,
        "comms_logger": 0,
        "throughput_timer_synchronized": 1,
    }


def test_on_a_cpu_it_waits_for_nothing() -> None:
    assert costly_defaults(engine(), False, waits=False)["throughput_timer_synchronized"] == 0


@pytest.mark.parametrize("on", [True, False])
def test_the_communication_logger_is_as_the_process_has_it(on: bool) -> None:
    assert costly_defaults(engine(), on, waits=True)["comms_logger"] == on


@pytest.mark.parametrize("timer", [(False, True), (True, False)])
def test_a_timer_that_is_off_or_does_not_wait_costs_nothing(timer: tuple[bool, bool]) -> None:
    config = SimpleNamespace(enabled=timer[0], synchronized=timer[1])
    told = costly_defaults(engine(tput_timer=SimpleNamespace(config=config)), None, waits=True)
    assert told["throughput_timer_synchronized"] == 0


def test_an_old_engine_without_these_settings_tells_of_the_others() -> None:
    old = engine(tput_timer=None, memory_breakdown=lambda: True)
    assert costly_defaults(old, None, waits=True) == {
        "wall_clock_breakdown": 0,
        "memory_breakdown": 1,
    }
