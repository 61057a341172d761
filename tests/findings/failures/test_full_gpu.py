"""Who held a GPU that was full, and in how large pieces."""

from __future__ import annotations

import pytest

from tests.findings.plants import WELL, alone, problem, run_of, steps

_NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.25 GiB. GPU 3 has a total "
    "capacity of 79.25 GiB of which 7.00 GiB is free. Of the allocated memory 60.00 GiB is "
    "allocated by PyTorch, and {} is reserved by PyTorch but unallocated."
)
_OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.50 GiB total "
    "capacity; 19.00 GiB already allocated; 1.00 GiB free; {} reserved in total by PyTorch)"
)


@pytest.mark.parametrize(
    ("text", "fragmented"),
    [
        (_NEW.format("10.25 GiB"), True),
        (_NEW.format("120.50 MiB"), False),
        (_OLD.format("22.00 GiB"), True),
        (_OLD.format("20.50 GiB"), False),
    ],
)
def test_memory_that_is_held_in_pieces_is_sought_there_first(text: str, fragmented: bool) -> None:
    found = alone(run_of([*steps(3, WELL), problem("oom", text, rank=3)]), "oom")
    first = found.advice[0].setting == "PYTORCH_CUDA_ALLOC_CONF"
    assert (first, "memory is fragmented" in found.summary) == (fragmented, fragmented)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_NEW.format("30.50 GiB"), "PyTorch counts 90.5 GiB as its own on a GPU of 79.2 GiB"),
        (_OLD.format("46.50 GiB"), "PyTorch counts 46.5 GiB as its own on a GPU of 23.5 GiB"),
    ],
)
def test_memory_beyond_what_the_gpu_has_is_not_held_in_pieces_of_it(text: str, said: str) -> None:
    found = alone(run_of([*steps(3, WELL), problem("oom", text, rank=3)]), "oom")
    assert said in found.summary
    assert "fragmented" not in found.summary
    assert found.advice[0].setting != "PYTORCH_CUDA_ALLOC_CONF"


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        ("40.00 GiB", ["shape of that tensor", "micro-batch"]),
        ("130674.91 GiB", ["shape of that tensor"]),
    ],
)
def test_a_tensor_that_is_larger_than_the_gpu_is_sought_in_its_shape(
    asked: str, settings: list[str]
) -> None:
    text = _OLD.format("22.00 GiB").replace("2.00 GiB (GPU 0", f"{asked} (GPU 0")
    found = alone(run_of([*steps(3, WELL), problem("oom", text, rank=3)]), "oom")
    assert "Alone that is more than the whole GPU has" in found.summary
    assert "fragmented" not in found.summary
    assert [one.setting for one in found.advice] == settings


@pytest.mark.parametrize(
    ("asked", "told", "shared"),
    [
        ("32.00 MiB", "Process 907 has 2.42 GiB memory in use. {}13.25 GiB memory in use.", True),
        ("32.00 MiB", "{}13.25 GiB memory in use. Process 907 has 2.42 GiB memory in use.", True),
        (
            "948.00 MiB",
            "{}30.97 GiB memory in use. Process 907 has 306.00 MiB memory in use.",
            False,
        ),
        ("32.00 MiB", "Process 907 has 15.42 GiB memory in use.", False),
    ],
)
def test_memory_that_another_process_holds_on_the_gpu_is_said_where_it_would_have_been_enough(
    asked: str, told: str, shared: bool
) -> None:
    text = f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a "
    text += "total capacity of 31.74 GiB of which 18.81 MiB is free. "
    text += told.format("Including non-PyTorch memory, this process has ")
    found = alone(run_of([*steps(3, WELL), problem("oom", text, rank=0)]), "oom")
    assert ("2.42 GiB (process 907)" in found.summary) is shared
    assert (found.advice[0].setting == "nvidia-smi on that host") is shared


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            "Process 16 has 30.51 GiB memory in use. Process 49 has 1022.00 MiB memory in use. ",
            "at most one of them this one: 30.51 GiB (process 16), 1022.00 MiB (process 49). ",
        ),
        (
            "Process 16 has 30.51 GiB memory in use. Process 49 has 102.00 MiB memory in use. ",
            "in this process: 30.9 GiB were held by other processes, or past that allocator. ",
        ),
    ],
)
def test_of_processes_of_which_one_may_be_itself_the_others_are_said_to_hold_the_gpu(
    told: str, said: str
) -> None:
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 148.00 MiB. GPU 0 has a "
        f"total capacity of 31.60 GiB of which 87.44 MiB is free. {told}Of the allocated memory "
        "594.01 MiB is allocated by PyTorch, and 5.99 MiB is reserved by PyTorch but unallocated."
    )
    found = alone(run_of([*steps(3, WELL), problem("oom", text, rank=0)]), "oom")
    assert said in found.summary
    assert found.advice[0].setting == "nvidia-smi on that host"


@pytest.mark.parametrize(("held", "shared"), [("10.80", True), ("72.00", False)])
def test_a_gpu_that_is_full_though_pytorch_has_little_of_it_is_shared(
    held: str, shared: bool
) -> None:
    """As PyTorch told it up to 2.1: the capacity first, and no process."""
    text = (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 50.00 MiB (GPU 0; "
        f"79.14 GiB total capacity; {held} GiB already allocated; 15.19 MiB free; {held} GiB "
        "reserved in total by PyTorch)"
    )
    found = alone(run_of([*steps(3, WELL), problem("oom", text, rank=0)]), "oom")
    assert ("68.3 GiB were held by other processes" in found.summary) is shared
    assert (found.advice[0].setting == "nvidia-smi on that host") is shared


@pytest.mark.parametrize(("own", "shared"), [("8.38 GiB", True), ("38.75 GiB", False)])
def test_memory_that_no_process_is_said_to_hold_is_in_another_container(
    own: str, shared: bool
) -> None:
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB. GPU 0 has a "
        "total capacity of 39.49 GiB of which 119.38 MiB is free. Including non-PyTorch memory, "
        f"this process has {own} memory in use."
    )
    found = alone(run_of([*steps(3, WELL), problem("oom", text, rank=3)]), "oom")
    assert ("enough: 31.0 GiB (no process named" in found.summary) is shared
    assert (found.advice[0].setting == "nvidia-smi on that host") is shared
