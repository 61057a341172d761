"""The table of events that logs and recordings fill and all views read: columns, kinds, names.

A row is one event on one rank, or a sum of such events. Units are always seconds and bytes. A
missing value means that the source does not tell it.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import Final

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:  # the hook imports this module, and training may use Python 3.9

    class StrEnum(str, Enum):
        __str__ = str.__str__


COLUMNS: Final = (
    "segment",  # the launch; a restart or an appended run begins the next one
    "engine",  # 0 unless several engines share the run (actor, critic)
    "step",  # optimizer step, missing if none
    "steps",  # number of optimizer steps, up to `step`, that the row sums over; for a logged call,
    # that it may belong to; missing for a single micro-batch or no step
    "rank",
    "host",
    "at",  # UTC if the source states the time zone, else by the log's own clock
    "kind",
    "name",  # canonical
    "raw",  # the source's own name
    "seconds",
    "bytes",
    "count",
    "value",
    "text",
    "source",
    "line",
    # Internal: for higher layers, so that they need not read a line again.
    "pattern",  # `dialect.pattern` that matched
    "timers",  # flavour of the timer line that the row comes from, missing if none
    "record",  # shared by the rows of one record, unique within a table
)

#: Prefix of `host` if a label of srun gives only the task, and neither node nor rank is known.
TASK: Final = "task "


class Kind(StrEnum):
    PHASE = "phase"
    COMM = "comm"
    MEMORY = "memory"
    METRIC = "metric"
    GPU = "gpu"
    PROBLEM = "problem"
    CONFIG = "config"


class Class(StrEnum):
    """What the time of a step was spent on."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"  # collectives
    WAIT = "wait"  # point-to-point: transfer, pipeline bubble and slow peers together
    OPTIMIZER = "optimizer"
    DATA = "data"
    OFFLOAD = "offload"
    CHECKPOINT = "checkpoint"
    OTHER = "other"


CLASSES: Final = tuple(str(word) for word in Class)


class Bound(StrEnum):
    """What holds a step back."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    PIPELINE = "pipeline"
    DATA = "data"
    OPTIMIZER = "optimizer"
    OFFLOAD = "offload"
    STRAGGLER = "straggler"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


#: The gravest first.
GRAVITY: Final = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}

#: Canonical metric names. Other metrics keep the source's names.
METRICS: Final = {
    "loss": "training loss; the window's mean where the source gives one",
    "lr": "learning rate of the first parameter group",
    "grad_norm": "global gradient norm",
    "loss_scale": "dynamic loss scale; -1 from a source means none and is dropped",
    "skipped": "optimizer steps skipped since the start, cumulative",
    "skipped_window": "optimizer steps skipped since the last such line",
    "nan_window": "iterations with NaN since the last such line",
    "step_seconds": "one optimizer step, mean over the window (column seconds)",
    "steps_per_second": "optimizer steps per second",
    "steps_per_second_mean": "the same in the mean of the last ones, as the source states it",
    "samples_per_second": "global samples per second, current",
    "samples_per_second_mean": "global samples per second, running mean since the start",
    "tokens_per_second": "global tokens per second",
    "tokens_per_second_gpu": "tokens per second of one GPU",
    "rank_samples_per_second": "samples per second of one rank, in one micro-batch",
    "rank_tflops_of_ranks": "TFLOP/s of one rank in one micro-batch, divided by the ranks",
    "tflops": "TFLOP/s of one GPU",
    "tflops_mean": "the same, a mean since the job began",
    "exited_well": "a process that ended with exit code 0 (its id)",
    "tests_over": "pytest says that it has run its tests, as its last word",
    "resumed_at": "optimizer steps done by earlier launches, as the one that goes on says",
    "left_out": "somebody left out lines of the log here (the mark for it)",
    "training_over": "a trainer says that it has trained as much as it was asked to (why)",
    "mfu": "model FLOPs utilisation, percent",
    "max_reserved_percent": "the same line's max_reserved as a part of the device's memory",
    "out_of_memory_message": "a sentence of PyTorch's message, where each stands in a line",
    "hccl_suspect": "a device that HCCL's heartbeats name as the likely cause, and why",
    "no_checkpoint": "the file that DeepSpeed did not find where it was to load a checkpoint",
    "stack": "a thread in a dump of stacks (its name, as faulthandler or py-spy writes it)",
    "stack_frame": "a frame of the thread before it, the innermost first (column text)",
    "stack_process": "a process of which py-spy dumps the stacks (its Python)",
    "ray_rank": "a process that Ray Train gave the row's rank (column text: its id)",
    "ray_task": "the process of which the next error tells, as Ray says (column text: its id)",
    "ray_gone": "a process that ended under Ray, as the errors around it say (column text: its id)",
    "called_from": "where in its code a rank had called what timed out (column text)",
    "raised_at": "the last frame of a traceback that is of no installed package",
    "exception_detail": "what is wrong, as a line behind the first of an exception's message says",
    "exception_field": "of what, where the line in front of that names a key of a configuration",
    "raised_in_setup": "the function of a traceback in which DeepSpeed sets up model or optimizer",
    "raised_in_load": "the function of a traceback in which Transformers loads the weights",
    "zero3_frame": "1 for a frame of a traceback that is of ZeRO-3's code",
    "command_not_found": "a program that a shell did not find (column text)",
    "raised_in_step": "1 for a traceback that passes through a call of some step()",
    "samples": "samples consumed since the start",
    "tokens": "tokens consumed since the start",
    "global_batch_size": "samples of one optimizer step",
    "seq_length": "tokens of one sample of this step (a curriculum changes it)",
    "epoch": "epoch, may be fractional",
    "epoch_turn": "turns of the epoch before this one",
    "epoch_step_seconds": "one turn, a mean since the epoch began (column seconds)",
    "epoch_data_seconds": "its waiting for data, the same",
    "epoch_loss": "the loss, the same",
    "total_steps": "optimizer steps the job means to run",
    "micro_step": "micro-batches seen (resets each epoch in DeepSpeed)",
    "global_step": "DeepSpeed's own optimizer step counter where it differs from the step",
    "eval_loss": "validation loss",
    "eval_perplexity": "the exponential of it, as the source prints it",
    "eval_runtime": "one evaluation (column seconds)",
    "reward": "reward of reinforcement learning, a mean as the source prints it",
    "checkpoint_begin": "a save begins here (column text: the checkpoint's name or path)",
    "weights": "files or tensors that a model's weights are read from",
    "weights_read": "how many of them a process has read",
    "bar_position": "turns that a progress bar counts",
    "bar_total": "how many it means to count",
    "bar_elapsed": "for how long it has counted (column seconds)",
    "bar_pace": "mean time of its turns so far (column seconds)",
    "bar_rate": "turns of a second in the mean so far",
    "checkpoint_told": "a script says that it saves (column text: what)",
    "elapsed": "seconds since the start (column seconds)",
    "eta": "seconds to go, as the source estimates (column seconds)",
    "communication_percent": "DeeperSpeed's %comms of a window",
    "optimizer_percent": "DeeperSpeed's %optimizer_step",
    "forward_percent": "DeeperSpeed's %forward",
    "backward_percent": "DeeperSpeed's %backward",
    "data_iterators": "iterators of data loaders that were made in this step",
    "compilations": "frames of code that torch.compile compiled in this step",
    "cpu_wait": "what the thread that trains has waited for a CPU since recording began (column "
    "seconds)",
    "cpu_throttled": "for how long a limit of CPU time has stopped the container since then, added "
    "up over CPUs (column seconds)",
    "garbage": "what the process has spent on collecting Python's garbage since recording began "
    "(column seconds)",
    "garbage_collections": "how many of these collections searched all objects (column count)",
    "looks": "how often the training thread was seen in such code while a phase of data was open "
    "(columns count, raw: the phase; text: functions and lines, the innermost first)",
    "looks_after": "the same where no phase was open, behind the end of that one",
    "standing": "for how long the training thread had been seen in such code while neither its "
    "phase nor its collective changed (columns seconds, at: since when, text: as above)",
    "optimizer_index": "which of a model's optimizers ended this step: 1 is the second to do so",
    "overhead": "what recording this step cost its rank (column seconds)",
    "overflow": "1 for a step skipped because of an overflow; text says how the scale moved",
}

#: Canonical memory names (column bytes unless said). Of the GPU of the row's rank unless said.
MEMORY: Final = {
    "allocated": "held by tensors now",
    "refused": "what was asked for in vain",
    "max_allocated": "peak of allocated since it was last reset",
    "reserved": "held by PyTorch's caching allocator now",
    "max_reserved": "peak of reserved",
    "device_used": "of the device, by all processes, as the trainer says",
    "host_used": "memory of the host in use",
    "host_percent": "the same in percent (column value)",
    "swap_percent": "swap space in use, percent (column value)",
    "cache_flushes": "allocator cache flushes since the last step (column count)",
    "host_process": "resident memory of the rank's own process",
}

#: Canonical names of GPU samples (kind "gpu", column value unless said; text is the UUID).
GPU: Final = {
    "memory_used": "of the device, by all processes (column bytes)",
    "memory_total": "of the device (column bytes)",
    "memory_process": "of the device, by one process (column bytes; raw begins with its id)",
    "utilization": "share of the last moments in which a kernel ran, percent",
    "memory_utilization": "share in which device memory was read or written, percent",
    "power": "watts",
    "temperature": "of the GPU, degrees Celsius",
    "temperature_memory": "of its memory, degrees Celsius",
    "clock_sm": "of the multiprocessors, MHz",
    "clock_memory": "of the memory, MHz",
    "throttled_power": "1 where the power limit held the clock down, else 0",
    "throttled_thermal": "1 where heat did",
    "throttled_hardware": "1 where the board's power brake or slowdown pin did",
    "nvlink_sent": "over all links, bytes per second since the sample before",
    "nvlink_received": "the same, received",
    "pcie_sent": "bytes per second since the sample before",
    "pcie_received": "the same, received",
    "ecc_corrected": "memory errors since the driver was loaded (column count)",
    "ecc_uncorrected": "the same, not corrected (column count)",
}

#: Problem names (kind "problem"): failures and warnings that a log or recording can show.
PROBLEMS: Final = {
    "oom": "out of memory on a GPU",
    "host-oom": "out of memory on the host",
    "shm-full": "a data loader's worker was lost, most likely because /dev/shm is full",
    "exception": "an exception or a fatal error ended a process; text is its last line",
    "exit": "a process ended with a non-zero exit code (column value; negative: signal)",
    "signal": "a process was killed by a signal (column value: its number)",
    "gone": "a process ended without closing its recording, and nobody saw how",
    "left": "a process ended while others still needed it: they lost their connection to it",
    "command": "the command of `dsprof attach` ended with an error (column value: its exit code; "
    "negative: signal), and no process was seen to fail",
    "command-alone": "the command of `dsprof attach` ended with an error (column value: the same), "
    "behind recorded processes that all ended with code 0",
    "killed-by-launcher": "ended by the launcher: another had failed, or the job was stopped",
    "root-cause": "what the launcher itself names as the first failure",
    "watchdog": "a collective timed out",
    "stuck": "NCCL's watchdog made no progress: a CUDA or NCCL call, or a thread with the GIL",
    "desync": "ranks stand at different collectives",
    "overdue": "a time limit of the script's own ran out, and faulthandler printed its stacks",
    "absent": "a rank did not come to the collective the others waited in",
    "connection": "a peer's connection broke",
    "store-lost": "the store of all ranks no longer answered, as at the end of training",
    "rendezvous": "workers did not find each other",
    "port-in-use": "a port to listen on is taken: the launcher's, or one of HCCL",
    "ssh-refused": "the launcher reaches no host over ssh, or may not log in there",
    "cancelled": "the scheduler ended the job; text says why",
    "not-scheduled": "no node could take a pod, or a step of Slurm; text says why",
    "not-admitted": "a node refused a pod, could not give it its devices, or did not start a step "
    "of Slurm; text says why",
    "restart": "the launcher starts the workers again",
    "overflow-limit": "gradients overflow at the least loss scale, or too often in a row: the run "
    "ends",
    "nan": "a loss or gradient is not a number",
    "network-fallback": "NCCL uses sockets where a faster transport was expected",
    "network-error": "a connection between ranks broke, or was not made",
    "iommu": "RCCL warns of an IOMMU that translates what GPUs send each other: that can hang",
    "prefetch-broken": "ZeRO-3's trace cache was invalidated: parameters are fetched late",
    "checkpoint-failed": "a checkpoint could not be written",
    "build-failed": "an extension failed to build",
    "wrong-arguments": "a script rejected its command line",
    "optimizer-fallback": "a fused optimizer failed to build: PyTorch's takes its place",
    "gpu-lost": "a GPU fell off the bus; text is its UUID, or the driver's line",
    "gpu-error": "the driver's message about a GPU; value is the number of its Xid",
    "gpu-fault": "a GPU stopped what a process ran on it; value is the number of the Xid",
    "recording-stopped": "dsprof ended its recording of a rank, not the training; text says why",
}

#: What the config is called that tells a variable which the job's processes were given, before the
#: variable's name. One that NCCL says it obeys has its name alone.
ENVIRONMENT: Final = "env."

#: Variables that switch off a way which NCCL takes, where they are 1.
NCCL_SWITCHES: Final = {
    "NCCL_P2P_DISABLE": "direct copies between the GPUs of a host",
    "NCCL_SHM_DISABLE": "the memory that processes of a host share",
    "NCCL_IB_DISABLE": "InfiniBand and RoCE between hosts",
}

#: Canonical configuration names (kind "config"; numbers in value, words in text).
CONFIG: Final = {
    "framework": "deepspeed, megatron, nemo, gpt-neox, huggingface, deepspeed-chat, verl",
    "deepspeed_version": "",
    "torch_version": "",
    "nccl_version": "",
    "world_size": "ranks",
    "nodes": "hosts",
    "workers": "names of hosts, as DeepSpeed's runner lists them (column text)",
    "localhost": "what NCCL calls the host that a launcher calls so",
    "zero_stage": "0 to 3",
    "micro_batch_size": "samples of one micro-batch on one GPU",
    "gradient_accumulation_steps": "",
    "train_batch_size": "samples of one optimizer step, all ranks",
    "steps_per_print": "",
    "data_parallel_size": "",
    "tensor_parallel_size": "",
    "pipeline_parallel_size": "",
    "expert_parallel_size": "",
    "distributed_type": "DEEPSPEED, MULTI_GPU, FSDP, ...: what accelerate says it shares work by",
    "gradient_buckets": "calls of one of DDP's reductions of all gradients",
    "wrapper": "DDP or FSDP2: what shares a recorded model among ranks",
    "trainer": "huggingface: whose loop calls what is recorded",
    "sequence_parallel_size": "",
    "context_parallel_size": "",
    "epochs": "epochs the job means to run",
    "parameters": "parameters of the model",
    "parameters_per_gpu": "",
    "seq_length": "tokens of one sample",
    "ds_config": "the user's configuration, whole, as JSON or as Python prints it (column text)",
    "offload_optimizer": "cpu or nvme",
    "offload_param": "cpu or nvme",
    "dtype": "fp16, bf16, fp32",
    "network": "what NCCL says it uses: IB, Socket, ...",
    "wall_clock_breakdown": "1 if on, as are the next three: they make the host wait",
    "memory_breakdown": "",
    "comms_logger": "",
    "throughput_timer_synchronized": "DeepSpeed's default; 0 on a CPU, where it costs nothing",
    "ddp_finds_no_unused": "1 where PyTorch warns that DDP seeks unused parameters in vain",
    "ddp_strides_differ": "1 where it warns that gradients lie otherwise than DDP's buckets",
    "nn_data_parallel": "1 where it warns of what only nn.DataParallel does",
    "loader_workers": "of a data loader, where it warns that they are too many",
    "loader_workers_most": "as many as it suggests there",
    "loader_pins_for_nothing": "1 where a data loader finds no device to pin memory for",
    "float32_without_tensor_cores": "1 where it is said that float32 leaves Tensor Cores idle",
    "loader_workers_advised": "of the training's loader, by Lightning, where it finds few",
    "accelerator": "cpu, cuda, npu, ...: what DeepSpeed or PyTorch has to compute on",
    "gpu": "UUID of the rank's GPU",
    "gpu_memory_bytes": "of one GPU",
    "cpu_threads": "in which PyTorch computes on the CPU, of one rank",
    "cpu_cores": "that a rank may use, all of its host unless it is bound to some",
    "cpu_limit": "CPUs that its container may keep busy, where it has such a limit",
    "local_ranks": "ranks of the host",
    "gpu_model": "what CUDA calls the GPU of the rank (column text)",
    "gpu_counters": "why there are none, where a recording has none",
    "phases_on": "gpu: phases are time on the device's stream; host: on the CPU that feeds it",
}

#: What a recording counts, and writes beside what the job was told.
COUNTED: Final = ("collectives_seen", "collectives_issued")
