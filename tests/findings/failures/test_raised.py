"""What a traceback says beyond the line of its exception."""

from __future__ import annotations

import pytest

from tests.findings.plants import alone
from tests.loaded import run_of_text

HEAD = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/data/train.py", line 40, in {inside}
[rank0]:     engine, *_ = deepspeed.initialize(model=model, config=config)
[rank0]:   File "/opt/lib/python3.11/site-packages/deepspeed/runtime/config.py", line 70, in get
[rank0]:     return Config(**given)
"""
PYDANTIC = """\
[rank0]: pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig
[rank0]: stage3_prefetch_bucket_size
[rank0]:   Input should be a valid integer, got a number with a fractional part [type=int_from]
"""


def test_the_key_that_a_configuration_has_wrong_is_named() -> None:
    found = alone(run_of_text(HEAD.format(inside="main") + PYDANTIC), "rank-died")
    assert found.title == (
        "Rank 0 ended with an exception: ValidationError: 1 validation error for "
        "DeepSpeedZeroConfig: stage3_prefetch_bucket_size: Input should be a valid integer, got a "
        "number with a fractional part"
    )
    assert found.advice[0].setting == "that key of DeepSpeed's configuration"


def test_the_tensor_that_a_checkpoint_has_otherwise_is_named() -> None:
    error = "[rank0]: RuntimeError: Error(s) in loading state_dict for Model:\n"
    other = "[rank0]: \tsize mismatch for lm_head.weight: copying a param with shape [7] from it.\n"
    found = alone(run_of_text(HEAD.format(inside="main") + error + other), "rank-died")
    assert "loading state_dict for Model: size mismatch for lm_head.weight: copying" in found.title


@pytest.mark.parametrize(
    ("inside", "said"),
    [("main", "line 40 of train.py, in main."), ("<module>", "line 40 of train.py.")],
)
def test_the_last_line_of_the_script_in_a_traceback_is_told(inside: str, said: str) -> None:
    """Below it are lines of installed packages."""
    found = alone(run_of_text(HEAD.format(inside=inside) + "[rank0]: KeyError: 'x'\n"), "rank-died")
    assert (
        f"The last line in its traceback that is of no installed package is {said}" in found.summary
    )


def test_a_traceback_of_packages_alone_names_no_line_of_the_script() -> None:
    of_packages = "".join(HEAD.format(inside="main").splitlines(keepends=True)[::3])
    found = alone(run_of_text(of_packages + "[rank0]: KeyError: 'x'\n"), "rank-died")
    assert "of no installed package" not in found.summary


def test_each_rank_passed_through_lines_of_its_own() -> None:
    other = HEAD.format(inside="late").replace("rank0", "rank1").replace("line 40", "line 77")
    ends = "[rank1]: ValueError: no\n[rank0]: KeyError: 'x'\n"
    found = alone(run_of_text(HEAD.format(inside="main") + other + ends), "rank-died")
    assert found.title.startswith("Rank 1 ended with an exception: ValueError: no")
    assert "line 77 of train.py, in late." in found.summary


def test_what_asked_for_memory_in_vain_is_told_by_its_line_too() -> None:
    error = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    found = alone(run_of_text(HEAD.format(inside="main") + error), "oom")
    assert "of no installed package is line 40 of train.py, in main." in found.summary
