"""Memory that ran out: who was first, and what makes room."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsprof.events import Severity
from dsprof.run import load
from tests.findings.failures.test_deaths import OOM, of_launch
from tests.findings.plants import WELL, alone, config, problem, rules, run_of, steps
from tests.loaded import run_of_text


def test_out_of_memory_names_rank_host_and_size() -> None:
    run = run_of([*steps(40, WELL), problem("oom", OOM, rank=3, host="w1", step=40)])
    found = alone(run, "oom")
    assert found.severity is Severity.CRITICAL
    assert found.title == "Rank 3 on w1 ran out of GPU memory after step 40"
    assert "It asked for 2.00 GiB more on a GPU of 79.2 GiB" in found.summary
    assert found.ranks == (3,)
    assert "rank-died" not in rules(run)


def test_out_of_memory_halves_the_micro_batch_it_knows() -> None:
    run = run_of([problem("oom", OOM, rank=3)], micro_batch_size=8, zero_stage=2)
    advice = {a.setting: (a.now, a.to) for a in alone(run, "oom").advice}
    assert advice["train_micro_batch_size_per_gpu"] == ("8", "4")
    assert advice["zero_optimization.stage"] == ("2", "3")


@pytest.mark.parametrize(
    ("size", "advised"),
    [
        (6, ("6", "3", "twice the")),
        (9, ("9", "3", "3 times the")),
        (999_983, ("999983", "smaller", "more of the")),  # a prime
        (-4, ("", "smaller", "twice the")),
    ],
)
def test_a_smaller_micro_batch_can_make_up_the_same_batch(
    size: int, advised: tuple[str, str, str]
) -> None:
    """No number that a configuration may hold is divided for long, and none below 1 is a size."""
    settings = json.dumps({"train_micro_batch_size_per_gpu": size})
    advice = alone(run_of([problem("oom", OOM, rank=3)], ds_config=settings), "oom").advice[0]
    assert (advice.now, advice.to, advice.why.partition(" gradient")[0]) == advised


def test_a_micro_batch_of_one_sample_cannot_be_smaller() -> None:
    run = run_of([problem("oom", OOM, rank=3)], micro_batch_size=1, zero_stage=3)
    assert [advice.setting for advice in alone(run, "oom").advice] == [
        "activation checkpointing", "PYTORCH_CUDA_ALLOC_CONF"
    ]  # fmt: skip


def test_a_card_that_is_full_for_nccl_before_any_step_is_held_by_another_process() -> None:
    full = problem("oom", "Cuda failure 2 'out of memory'", host="w0")
    assert alone(run_of([full], zero_stage=1), "oom").advice[0].setting == "nvidia-smi on that host"
    later = alone(run_of([*steps(9, WELL), full], zero_stage=1), "oom").advice
    assert "zero_optimization.stage" in [advice.setting for advice in later]


@pytest.mark.parametrize(
    "said",
    [
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "1913.62GB / 2014.18GB (0.950074), which exceeds the memory usage threshold of 0.95",
    ],
)
def test_a_worker_that_ray_ended_is_not_looked_for_in_the_kernel_s_log(said: str) -> None:
    advice = alone(run_of([problem("host-oom", said)]), "oom").advice[0]
    assert advice.setting.startswith("ray logs")


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Out of memory: Killed process 4101 (python3)", "DataLoader(num_workers=...)"),
        ("Memory cgroup out of memory: Killed process 4101 (python3)", "docker --memory"),
        ("OOMKilled", "docker --memory"),
    ],
)
def test_where_the_kernel_names_its_victim_nobody_is_sent_to_ask_it(said: str, asked: str) -> None:
    found = alone(run_of([problem("host-oom", said)]), "oom")
    assert found.advice[0].setting.startswith(asked)
    assert ("limit of its container" in found.summary) == (asked == "docker --memory")


def test_a_full_host_is_told_from_a_full_card() -> None:
    run = run_of([problem("host-oom", "DefaultCPUAllocator: can't allocate memory", rank=0)])
    assert "ran out of host memory" in alone(run, "oom").title


def test_advice_is_on_the_settings_of_the_launch_that_failed() -> None:
    rows = [*steps(9, WELL), *of_launch(1, [config("zero_stage", 1), problem("oom", OOM, rank=0)])]
    run = run_of(rows, micro_batch_size=8, zero_stage=3)
    advice = {a.setting: (a.now, a.to) for a in alone(run, "oom").advice}
    assert advice["train_micro_batch_size_per_gpu"] == ("", "smaller")
    assert advice["zero_optimization.stage"] == ("1", "2")


def test_a_card_that_is_full_for_nccl_is_named_and_so_is_what_was_asked_for() -> None:
    full = problem("oom", "Cuda failure 2 'out of memory'", value=1)
    refused = {"kind": "memory", "name": "refused", "bytes": 16, "value": 1}
    found = alone(run_of([full, refused]), "oom")
    assert found.title == "A process ran out of GPU memory (GPU 1)"
    assert "It asked for 16 B more." in found.summary


@pytest.mark.parametrize(("stage", "advised"), [(0, False), (2, True)])
def test_less_offloading_is_advised_only_where_there_may_be_some(stage: int, advised: bool) -> None:
    run = run_of([problem("signal", "Signal 9 (SIGKILL)", value=9, rank=1)], zero_stage=stage)
    found = alone(run, "rank-died")
    assert any("offload_optimizer" in advice.setting for advice in found.advice) is advised


def test_an_optimizer_that_is_not_offloaded_is_not_advised_to_be_offloaded_less() -> None:
    killed = problem("signal", "Signal 9 (SIGKILL)", value=9, rank=1)
    told = {"kind": "config", "name": "cpu_offload", "raw": "CPU Offload", "text": "False"}
    advised = alone(run_of([killed, told], zero_stage=1), "rank-died").advice
    assert not any("offload" in advice.setting for advice in advised)


def test_a_recording_without_deepspeed_is_not_advised_to_offload_less() -> None:
    killed = problem("signal", "killed by SIGKILL", value=9, rank=1, source="rank00001.0.dsprof")
    assert not any(
        "zero" in advice.setting for advice in alone(run_of([killed]), "rank-died").advice
    )


@pytest.mark.parametrize(
    ("source", "workers", "advised"),
    [("rank00001.0.dsprof", 0, []), ("rank00001.0.dsprof", 4, ["4"]), ("run.log", 0, [""])],
)
def test_fewer_workers_are_not_advised_where_a_recording_shows_none(
    source: str, workers: int, advised: list[str]
) -> None:
    killed = problem("signal", "killed by SIGKILL", value=9, rank=1, source=source)
    run = run_of([killed, *([config("data_workers", workers)] if workers else [])])
    told = alone(run, "rank-died").advice
    assert [one.now for one in told if one.setting == "DataLoader(num_workers=...)"] == advised


def test_a_full_gpu_is_not_blamed_on_a_process_that_nothing_shows() -> None:
    full = problem("oom", "Cuda failure 2 'out of memory'", host="w0")
    first, second = alone(run_of([full]), "oom").advice
    assert "by this process, or by another one" in first.why
    assert second.why.startswith("if two ranks share this GPU")


_IN_STEP = """[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 135, in main
[rank1]:     model_engine.{call}()
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.44 GiB. GPU 1 has a total
"""


@pytest.mark.parametrize(("call", "inside"), [("step", True), ("backward", False)])
def test_memory_that_the_update_asks_for_is_not_sought_in_activations(
    tmp_path: Path, call: str, inside: bool
) -> None:
    (tmp_path / "run.log").write_text(_IN_STEP.format(call=call), encoding="utf-8")
    found = alone(load(tmp_path / "run.log"), "oom")
    settings = [advice.setting for advice in found.advice]
    assert ("passes through step()" in found.summary) is inside
    assert ("zero_optimization.offload_optimizer.device" in settings) is inside
    assert ("activation checkpointing" in settings) is not inside


_IN_SETUP = """Traceback (most recent call last):
  File "/opt/lmflow/examples/finetune.py", line 65, in <module>
    main()
  File "{package}/runtime/engine.py", line 1311, in {function}
    self.optimizer = self._configure_bf16_optimizer(basic_optimizer)
Loading extension module utils...
  File "{package}/runtime/bf16_optimizer.py", line 258, in flatten_aligned
    return self.flatten(align_dense_tensors(tensor_list, alignment))
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.55 GiB (GPU 1; 23.69 GiB)
"""


@pytest.mark.parametrize(
    ("package", "function", "inside"),
    [
        ("/opt/site-packages/deepspeed", "_configure_optimizer", True),
        ("/opt/site-packages/deepspeed", "_configure_zero_optimizer", True),
        ("/opt/site-packages/deepspeed", "_setup_for_real_optimizer", True),
        ("/opt/site-packages/deepspeed", "forward", False),
        ("/opt/site-packages/other", "_configure_optimizer", False),
    ],
)
def test_memory_that_the_optimizers_set_up_asks_for_is_no_matter_of_the_batch(
    tmp_path: Path, package: str, function: str, inside: bool
) -> None:
    log = tmp_path / "run.log"
    log.write_text(_IN_SETUP.format(package=package, function=function), encoding="utf-8")
    found = alone(load(log), "oom")
    settings = [advice.setting for advice in found.advice]
    assert ("the set-up of the optimizer" in found.summary) is inside
    assert ("zero_optimization.offload_optimizer.device" in settings) is inside
    assert ("micro-batch" in settings) is not inside


def test_a_model_that_does_not_fit_as_it_is_moved_to_the_gpu_is_to_be_sharded(
    tmp_path: Path,
) -> None:
    log = tmp_path / "run.log"
    package, function = "/opt/site-packages/deepspeed", "_configure_distributed_model"
    log.write_text(_IN_SETUP.format(package=package, function=function), encoding="utf-8")
    found = alone(load(log), "oom")
    assert "the move of the model to the GPU" in found.summary
    assert [(advice.setting, advice.to) for advice in found.advice][:2] == [
        ("zero_optimization.stage", "3"),
        ("deepspeed.zero.Init()", "around the model's making, with ZeRO-3"),
    ]


_LOADING = """\
Loading checkpoint shards:  42%|####      | {read}/38 [00:14<00:19,  1.13it/s]
[rank2]: Traceback (most recent call last):
[rank2]:   File "/opt/site-packages/accelerate/utils/modeling.py", line 400, in {function}
[rank2]:     new_value = value.to(device)
[rank2]: RuntimeError: NPU out of memory. Tried to allocate 386.00 MiB (NPU 2; 60.97 GiB total \
capacity; 59.57 GiB already allocated; 59.57 GiB current active; 16.54 MiB free; 60.06 GiB \
reserved in total by PyTorch)
"""


@pytest.mark.parametrize("function", ["set_module_tensor_to_device", "forward"])
def test_a_model_that_does_not_fit_as_it_is_loaded_is_not_to_have_smaller_batches(
    function: str,
) -> None:
    loads = function != "forward"
    text = _LOADING.format(function=function, read=16 if loads else 38)
    found = alone(run_of_text(text), "oom")
    settings = [advice.setting for advice in found.advice]
    assert ("the loading of the model's weights" in found.summary) is loads
    assert ("deepspeed.zero.Init()" in settings) is loads
    assert ("micro-batch" in settings) is not loads


def test_an_npu_is_advised_on_the_allocator_of_torch_npu() -> None:
    text = _LOADING.format(function="forward", read=38)
    of_npu, of_gpu = run_of_text(text), run_of_text(text.replace("NPU out", "CUDA out"))
    for run, name in ((of_npu, "PYTORCH_NPU_ALLOC_CONF"), (of_gpu, "PYTORCH_CUDA_ALLOC_CONF")):
        assert name in [advice.setting for advice in alone(run, "oom").advice]


def test_a_stage_that_does_not_fit_as_it_is_moved_to_the_gpu_is_to_hold_fewer_layers() -> None:
    moved = {"kind": "metric", "name": "raised_in_setup", "raw": "setup"}
    failed = problem("oom", "CUDA out of memory. Tried to allocate 2.00 GiB")
    rows = [moved | {"text": "_configure_distributed_model"}, failed]
    found = alone(run_of(rows, pipeline_parallel_size=4, world_size=8), "oom")
    assert [(advice.setting, advice.now, advice.to) for advice in found.advice] == [
        ("number of pipeline stages", "4", "more"),
        ("dtype of the loaded model", "", "bfloat16"),
    ]


def test_what_nccl_asks_for_as_the_model_is_broadcast_is_not_its_parameters(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    moved = _IN_SETUP.format(
        package="/opt/site-packages/deepspeed", function="_configure_distributed_model"
    )
    said = (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled "
        "cuda error\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
        "Cuda failure 2 'out of memory'\n"
    )
    log.write_text(moved[: moved.index("torch.cuda.OutOf")] + said, encoding="utf-8")
    found = alone(load(log), "oom")
    assert "parameters asked for it" not in found.summary
    assert found.advice[0].setting == "nvidia-smi on that host"


def test_memory_that_evaluation_asks_for_is_no_matter_of_the_batch_of_training(
    tmp_path: Path,
) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/transformers/trainer.py", line 4100, in evaluation_loop\n'
        "    losses = self.prediction_step(model, inputs)\n"
        '  File "/opt/venv/model.py", line 9, in forward\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    found = alone(load(log), "oom")
    assert [advice.setting for advice in found.advice] == [
        "per_device_eval_batch_size",
        "eval_accumulation_steps, prediction_loss_only",
    ]


def test_an_evaluation_inside_step_asks_for_memory_and_not_the_update(tmp_path: Path) -> None:
    """As of a trainer whose `step` evaluates every so often."""
    outer = '  File "train.py", line 9, in main\n    trainer.step()\n'
    inner = '  File "/opt/venv/trl/trainer.py", line 41, in evaluation_loop\n    self.predict(x)\n'
    refused = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    log = tmp_path / "run.log"
    log.write_text("Traceback (most recent call last):\n" + outer + inner + refused)
    found = alone(load(log), "oom")
    assert "passes through an evaluation: training itself did not ask for it" in found.summary
    assert "step()" not in found.summary
    assert found.advice[0].setting == "per_device_eval_batch_size"


@pytest.mark.parametrize("who", ["", "[rank3]: "])
def test_an_out_of_memory_message_that_was_broken_into_lines_keeps_its_size(who: str) -> None:
    run = run_of_text(
        f"{who}torch.OutOfMemoryError: CUDA out of memory.\n",
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory.\n",
        f"{who}Tried to allocate 2.00 GiB.\n",
    )
    assert "It asked for 2.00 GiB more." in alone(run, "oom").summary


def test_other_processes_are_seen_in_an_out_of_memory_message_that_was_broken_into_lines() -> None:
    run = run_of_text(
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory.\n",
        "[rank0]: Tried to allocate 32.00 MiB.\n",
        "[rank0]: GPU 0 has a total capacity of 31.74 GiB of which 18.81 MiB is free.\n",
        "[rank1]: Process 11 has 9.42 GiB memory in use.\n",
        "[rank0]: Process 907 has 2.42 GiB memory in use.\n",
        "[rank0]: Including non-PyTorch memory, this process has 29.25 GiB memory in use.\n",
        "[rank0]: Of the allocated memory 28.50 GiB is allocated by PyTorch,\n",
        "[rank0]: and 120.50 MiB is reserved by PyTorch but unallocated.\n",
    )
    found = alone(run, "oom")
    assert "would have been enough: 2.42 GiB (process 907). " in found.summary
    assert "memory is fragmented" in found.summary
    assert found.advice[0].setting == "nvidia-smi on that host"


def test_the_kernels_summary_of_a_kill_says_which_limit_was_reached() -> None:
    text = "oom-kill:constraint=CONSTRAINT_{},nodemask=(null),cpuset=/,task=python3,pid=4101"
    found = alone(run_of([problem("host-oom", text.format("MEMCG"))]), "oom")
    assert found.summary.startswith("It reached the limit of its container or job")
    assert found.advice[0].setting.startswith("docker --memory")
    found = alone(run_of([problem("host-oom", text.format("NONE"))]), "oom")
    assert "container" not in found.summary
    assert all("dmesg" not in advice.setting for advice in found.advice)


_CPU = "[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory:"


@pytest.mark.parametrize(
    ("said", "size"),
    [
        (
            "MemoryError: Unable to allocate 64.0 GiB for an array with shape (8589934592,)",
            "64.0 GiB",
        ),
        (
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 15.5 GiB for an array",
            "15.5 GiB",
        ),
        (f"RuntimeError: {_CPU} you tried to allocate 42949672960 bytes.", "40.0 GiB"),
        ("memory allocation of 2097152 bytes failed", "2.00 MiB"),
        ("memory allocation of memory allocation of 20971522097152 bytes failed", ""),  # two wrote
        ("OSError: [Errno 12] Cannot allocate memory", ""),
        ("MemoryError", ""),
    ],
)
def test_what_a_process_was_refused_is_named_and_no_victim_of_the_kernel_looked_for(
    said: str, size: str
) -> None:
    found = alone(run_of([problem("host-oom", said, rank=0)]), "oom")
    assert found.title == "Rank 0 ran out of host memory" + (
        f": it was refused {size}" * bool(size)
    )
    assert found.advice[0].setting == "free -g and ulimit -v on that host"
    assert not any("dmesg" in one.setting for one in found.advice)


def test_what_an_operator_of_an_npu_could_not_allocate_is_no_exception_of_the_script() -> None:
    run = run_of_text(
        "[rank3]:[E615 21:49:22.056172510 compiler_depend.ts:444] NPU out of memory. "
        "NPUWorkspaceAllocator tried to allocate 1.50 GiB(NPU 3; 60.96 GiB total capacity; 512.25 "
        "MiB free). If you want to reduce memory usage, take a try to set the environment variable "
        "TASK_QUEUE_ENABLE=1.\n",
        "[rank3]: Traceback (most recent call last):\n",
        '[rank3]:   File "train.py", line 80, in <module>\n',
        "[rank3]:     main()\n",
        "[rank3]: RuntimeError: The Inner error is reported as above. The process exits for this "
        "inner error, and the current working operator name is aclnnMm.\n",
    )
    found = run.findings[0]
    assert (found.rule, found.ranks) == ("oom", (3,))
    assert "It asked for 1.50 GiB more on a GPU of 61.0 GiB." in found.summary


@pytest.mark.parametrize("begun", [False, True])
def test_the_drivers_own_error_before_any_step_is_not_laid_to_the_batch(*, begun: bool) -> None:
    step = " iteration    10/  500 | elapsed time per iteration (ms): 250.5 | lm loss: 2.5E+00 |\n"
    run = run_of_text(
        *([step] if begun else []),
        "Traceback (most recent call last):\n",
        '  File "megatron/initialize.py", line 140, in _compile_dependencies\n',
        "    torch.distributed.barrier()\n",
        "RuntimeError: CUDA error: out of memory\n",
    )
    found = alone(run, "oom")
    assert (found.advice[0].setting == "nvidia-smi on that host") != begun
    assert any("micro" in advice.setting for advice in found.advice) == begun


def test_no_higher_stage_is_advised_where_a_traceback_passes_through_zero_3() -> None:
    text = """Traceback (most recent call last):
  File "/data/train.py", line 9, in <module>
  File "/opt/venv/lib/deepspeed/runtime/zero/stage3.py", line 947, in _optimizer_step
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.39 GiB. GPU 1 has a total \
capacity of 79.32 GiB of which 2.40 GiB is free.
"""
    run = run_of_text(text)
    assert run.zero.stage == 3
    advised = [one.setting for one in alone(run, "oom").advice]
    assert "zero_optimization.stage" not in advised
    other = text.replace("stage3.py", "stage_1_and_2.py")
    advised = [one.setting for one in alone(run_of_text(other), "oom").advice]
    assert "zero_optimization.stage" in advised


def test_an_allocator_that_knows_no_expandable_segments_is_not_told_to_use_them() -> None:
    """PyTorch before 2.1 refuses to start with a word that it does not know."""
    said = "RuntimeError: CUDA out of memory. Tried to allocate 274.00 MiB (GPU 1; 23.70 GiB total "
    said += "capacity; 21.95 GiB already allocated; 25.69 MiB free; 22.28 GiB reserved in total by "
    advice = alone(run_of_text(f"{said}PyTorch)\n"), "oom").advice[0]
    assert (advice.setting, advice.to) == ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128")
