"""What helps against an exception, by what it says."""

from __future__ import annotations

import re
from typing import Final

from dsprof.findings.failures.environments import against_environment
from dsprof.findings.finding import Advice

SSH: Final = Advice(
    "ssh HOST hostname",
    "",
    "works without a password",
    "the launcher starts the other nodes over ssh",
)
#: Where what is told only follows from what happened elsewhere.
OTHER_LOGS: Final = Advice(
    "logs of the other ranks and hosts",
    "",
    "look for the first failure there",
    "what is told here follows from another failure",
)
_GONE_OF_RAY: Final = Advice(
    "ray logs worker-*.err, dmesg on that host",
    "",
    "look for the worker's own last messages",
    "Ray only says that its process is gone: killed, most often for memory, or crashed",
)
_SHM_OF_NCCL: Final = Advice(
    "docker --shm-size, --ipc=host",
    "",
    "a larger /dev/shm",
    "NCCL's ranks of one host meet in shared memory",
)
_NO_INTERFACE: Final = Advice(
    "NCCL_SOCKET_IFNAME",
    "",
    "unset, or an interface that this host has (ip -br addr)",
    "no interface of the name it asks for has an address here",
)
_OF_STEP: Final = Advice(
    "training.log in the output folder of that step",
    "",
    "look for the first error there",
    "DeepSpeed-Chat's launcher only tells how the step's script ended",
)
SERIAL: Final = Advice(
    "AMD_SERIALIZE_KERNEL", "", "3, for one run", "the fault is then reported where it happened"
)
BLOCKING: Final = Advice(
    "CUDA_LAUNCH_BLOCKING", "", "1, for one run", "a traceback then ends where it failed"
)

#: An exception that says itself which variable it wants, and how.
_BATCH: Final = re.compile(
    r"train_batch_size is not equal to .{1,80} (\d{1,9}) != (\d{1,9}) \* (\d{1,9}) \* (\d{1,9})"
)
_VARIABLE: Final = re.compile(r"environment variable ([A-Z][A-Z0-9_]{1,60}) to (\S{1,60})")

_INDEX: Final = Advice(
    "token ids, positions, labels",
    "",
    "below the size of the table that they index",
    "an id of the data has no row: a tokenizer larger than the embedding, or a longer sequence",
)

_SAME_CALLS: Final = Advice(
    "branches that depend on data or rank",
    "",
    "the same collectives on every rank",
    "some ranks called different ones, or with tensors of different sizes",
)

_CRASHED_WORKER: Final = Advice(
    "DataLoader(num_workers=...)",
    "",
    "0, for one run, with PYTHONFAULTHANDLER 1",
    "the crash is then shown where it happens: mostly in a library that reads or decodes samples",
)

_GATHERED: Final = Advice(
    "deepspeed.zero.GatheredParameters",
    "",
    "around what reads parameters outside the engine's forward",
    "under ZeRO-3 a parameter that is not gathered is an empty tensor",
)

_OPEN_FILES: Final = Advice(
    "ulimit -n",
    "",
    "higher; or fewer workers of data loaders",
    "tensors that workers hand over keep files open: the sharing strategy file_system does not",
)

_FULL_DISK: Final = Advice(
    "storage", "", "space", "mostly a full disk or quota while a checkpoint was written"
)

#: Of ZeRO-3, which compares the order of modules between ranks in the first backward.
_SAME_MODULES: Final = Advice(
    "branches that depend on data or rank",
    "",
    "the same modules on every rank, in the same order",
    "ZeRO-3 gathers parameters module by module, which needs all ranks",
)

#: What is in an exception's text -> what helps.
_BY_TEXT: Final = {
    "Check batch related parameters": Advice(
        "train_batch_size",
        "",
        "micro-batch x accumulation x ranks, or left out",
        "DeepSpeed rejects any other number",
    ),
    "validation error for DeepSpeed": Advice(
        "that key of DeepSpeed's configuration",
        "",
        "a value of the type that the message names",
        "it is in the JSON, or a trainer works it out where that says auto",
    ),
    "not reachable via ssh": SSH,
    "timer has already been started": Advice(
        "wall_clock_breakdown",
        "true",
        "false",
        "since 0.18.3 DeepSpeed cannot time its pipeline engine (0.19.8 still cannot)",
    ),
    "no_sync context manager is incompatible": Advice(
        "DeepSpeed, accelerate, transformers",
        "",
        "DeepSpeed before 0.16, or newer ones of the others",
        "a trainer called no_sync where it accumulates, which ZeRO 2 and 3 refuse since 0.16",
    ),
    "still have inflight params": Advice(
        "DeepSpeed",
        "",
        "0.15.3 or newer; until then zero_optimization.stage3_prefetch_bucket_size 0",
        "parameters were fetched ahead for a module that did not run this time: other modules ran "
        "than before, which newer ones allow",
    ),
    "unable to write to file </torch_": Advice(
        "docker --shm-size, --ipc=host",
        "",
        "a larger /dev/shm",
        "processes hand tensors over in shared memory, and it is full",
    ),
    "NCCL: Call to posix_fallocate": _SHM_OF_NCCL,
    "shared memory segment nccl-": _SHM_OF_NCCL,
    "No space left on device": Advice("storage", "", "space", "a full disk, quota or /dev/shm"),
    "Disk quota exceeded": Advice(
        "quota of the user or folder", "", "more, or fewer files kept", "the disk itself has room"
    ),
    "Too many open files": _OPEN_FILES,
    "received 0 items of ancdata": _OPEN_FILES,
    "HTTPSConnectionPool(host='huggingface.co'": Advice(
        "HF_HUB_OFFLINE",
        "",
        "1, with models and data downloaded before",
        "each rank asks the hub at its start, and one that gets no answer ends the job",
    ),
    "Hostfile ": Advice(
        "hostfile", "", "one line for each host: NAME slots=N", "the launcher rejects any other"
    ),
    "No slot '": Advice(
        "--include, --exclude, CUDA_VISIBLE_DEVICES",
        "",
        "numbers that the hostfile has; without one, those of visible GPUs from 0 on",
        "the launcher numbers GPUs so, and knows no other",
    ),
    "is killed by signal: Killed": Advice(
        "DataLoader(num_workers=...)",
        "",
        "fewer",
        "the kernel kills a worker where the host's memory is full: dmesg there says so",
    ),
    "is killed by signal: Segmentation fault": _CRASHED_WORKER,
    "is killed by signal: Aborted": _CRASHED_WORKER,
    "is killed by signal: Terminated": Advice(
        "logs of the other ranks, and of the scheduler",
        "",
        "look for what ended the job",
        "SIGTERM comes from outside: a launcher or a scheduler ends all processes with it",
    ),
    "exited unexpectedly with exit code": Advice(
        "DataLoader(num_workers=...)",
        "",
        "0, for one run",
        "the worker's error is then raised where it happens",
    ),
    "DataLoader worker (pid": Advice(
        "DataLoader(num_workers=...)",
        "",
        "fewer, or a larger /dev/shm (docker --shm-size)",
        "its workers hand their batches over in shared memory",
    ),
    "HIP error: an illegal memory access": SERIAL,
    "HIP error: device-side assert": SERIAL,
    "illegal memory access": BLOCKING,
    "uncorrectable ECC error": Advice(
        "nvidia-smi -q -d ECC",
        "",
        "exclude that GPU and have it checked",
        "its memory is faulty, not the job",
    ),
    "disagreement between rank0 and rank": _SAME_MODULES,
    "uncorrectable NVLink error": Advice(
        "nvidia-smi nvlink -e",
        "",
        "exclude that GPU and have its links checked",
        "a link between GPUs is faulty, not the job",
    ),
    "checkpoint being loaded used a DP world size": Advice(
        "number of ranks",
        "",
        "that of the checkpoint, or make it universal (ds_to_universal.py)",
        "ZeRO's states are partitioned by the number of ranks",
    ),
    "terminated with signal SIGKILL": Advice(
        "dmesg on that host",
        "",
        "look for 'Out of memory: Killed process'",
        "a process killed without a message has usually run out of host memory",
    ),
    "PytorchStreamWriter failed": _FULL_DISK,
    "basic_ios::clear: iostream error": _FULL_DISK,
    "] . unexpected pos ": _FULL_DISK,
    "srcIndex < srcSelectDimSize": _INDEX,
    "index out of bounds": _INDEX,
    "device-side assert": BLOCKING,
    "CUBLAS_STATUS_NOT_INITIALIZED": Advice(
        "nvidia-smi on that host",
        "",
        "see how full the GPU is",
        "cuBLAS found no room for its workspace, or an earlier kernel had failed already",
    ),
    "Memory access fault by GPU": SERIAL,
    "HSA_STATUS_ERROR_EXCEPTION": SERIAL,
    "reason :GPU Hang": Advice(
        "dmesg on that host",
        "",
        "look for amdgpu: which queue hung, and whether the driver reset the GPU",
        "the runtime only says that the GPU did not answer",
    ),
    "has inconsistent 0 params": Advice(
        "NCCL_DEBUG",
        "",
        "INFO",
        "the models may be alike: 0 is a number that never arrived, as where NCCL gets nothing "
        "through",
    ),
    "HSA_STATUS_ERROR_OUT_OF_RESOURCES": Advice(
        "rocm-smi on that host",
        "",
        "see how full the GPU is",
        "its runtime could not allocate what it needs: memory, or the host's threads and events",
    ),
    "Failed to CUDA ": Advice(
        "nvidia-smi on that host",
        "",
        "see how full its GPUs are, and of what",
        "NCCL got no memory there, mostly as others hold it; NCCL_DEBUG=WARN prints CUDA's reason",
    ),
    "Duplicate GPU detected": Advice(
        "CUDA_VISIBLE_DEVICES, torch.cuda.set_device(local_rank)",
        "",
        "one GPU for each rank",
        "two ranks chose the same one, which NCCL refuses",
    ),
    "no socket interface found": _NO_INTERFACE,
    "neither AF_INET(2) nor AF_INET6(10)": _NO_INTERFACE,
    "shm/nccl-": _SHM_OF_NCCL,
    "EJ0001": Advice(
        "npu-smi info",
        "",
        "end what is left of the job before, wait 10 s",
        "one device has one helper process (HCCP) at a time",
    ),
    "Step 1 exited with non-zero status": _OF_STEP,
    "Step 2 exited with non-zero status": _OF_STEP,
    "Step 3 exited with non-zero status": _OF_STEP,
    "NCCL communicator was aborted": OTHER_LOGS,
    "ActorDiedError": _GONE_OF_RAY,
    "RayActorError": _GONE_OF_RAY,
    "A worker died or was killed": _GONE_OF_RAY,
    "The actor is dead because": _GONE_OF_RAY,
    "Bootstrap Root": Advice(
        "RANK, WORLD_SIZE, MASTER_PORT",
        "",
        "each rank once, the same world size for all, one job per port",
        "processes connected that do not belong together",
    ),
    "No backend type associated with device type": Advice(
        "init_process_group(backend=...)",
        "",
        "one for that device: nccl (cuda), xccl (xpu), hccl (npu, hpu), gloo (cpu)",
        "the group has no backend that moves tensors of this device; cpu:gloo,cuda:nccl has two",
    ),
    "Exception in Lowering thread": Advice(
        "HABANA_LOGS",
        "",
        "look into graph_compiler.log in that folder",
        "Gaudi's graph compiler says there what it refused",
    ),
    "NCCL: Error: network ": Advice(
        "NCCL_NET",
        "",
        "unset, or one that this host has: IB, Socket",
        "a variable or a plugin asks for a network whose adapters NCCL does not find here",
    ),
    "'use_muon'": Advice(
        "optimizer.type",
        "",
        "Muon, DeepSpeed's own, of its newest version",
        "ZeRO flattens parameters: a Muon that looks each of them up does not find it",
    ),
    "Some NCCL operations have failed or timed out": Advice(
        "log of each rank from its start (torchrun --log-dir --tee 3)",
        "",
        "look for what its watchdog had told before",
        "it names the collective that timed out, or NCCL's error, and ends the process then",
    ),
    "RESOURCE_EXHAUSTED: Error allocating device buffer": Advice(
        "micro-batch",
        "",
        "smaller, or activations recomputed",
        "XLA found no room for a buffer in the memory of its device",
    ),
    "Mismatched collective": _SAME_CALLS,
    "ollective mismatch": _SAME_CALLS,
    "RendezvousClosedError": Advice(
        "logs of the other nodes",
        "",
        "look for the first failure there",
        "a launcher that ends closes the rendezvous for all",
    ),
    "== num_file_bytes": Advice(
        "nvme_path",
        "",
        "space for all of its swap files",
        "a file there is shorter than what was written, as on a full disk",
    ),
    "in loading state_dict for": Advice(
        "the model's settings",
        "",
        "those that the checkpoint was written with",
        "names or shapes of its tensors differ: the lines below the message list them",
    ),
    "Error locating target '": Advice(
        "HYDRA_FULL_ERROR", "", "1, for one run", "shows what failed while it was imported"
    ),
    "The model is not runnable with DeepSpeed": Advice(
        "stderr.log in autotuning_results/profile_model_info",
        "",
        "look for the first error there",
        "the autotuner runs the model as a job of its own, and shows a piece of its error",
    ),
    "No optimal ": Advice(
        "stderr.log in the folders of autotuning_results",
        "",
        "look for the first error there",
        "the autotuner's experiments are jobs of their own",
    ),
    "ing ncclUniqueId from [": Advice(
        "log of rank 0",
        "",
        "see how it ended, or what it did meanwhile (then a longer ddp_timeout)",
        "the others wait for it before their first collective: data that it prepares alone may "
        "take too long, and without it its store is gone",
    ),
    "Stale file handle": Advice(
        "caches and outputs (HF_HOME, HF_DATASETS_CACHE)",
        "",
        "on a disk of each host, or written by one process alone",
        "on a network file system another process removed or replaced that file",
    ),
    "correct the following DeepSpeed config values": Advice(
        "DeepSpeed's JSON",
        "",
        '"auto" for the values that the message lists',
        "the Trainer then fills in its own arguments",
    ),
    "Expected to mark a variable ready only once": Advice(
        "gradient_checkpointing_kwargs, ddp_find_unused_parameters",
        "",
        "use_reentrant False, and no search for unused parameters",
        "reentrant checkpointing runs a layer twice, whose gradient DDP then gets twice",
    ),
    "Expected to have finished reduction in the prior iteration": Advice(
        "ddp_find_unused_parameters",
        "",
        "True, or no parameters that are in no loss",
        "DDP waits for the gradient of each parameter",
    ),
    "element 0 of tensors does not require grad": Advice(
        "gradient checkpointing",
        "",
        "use_reentrant False, or model.enable_input_require_grads()",
        "reentrant checkpointing loses the gradient where frozen layers come first, as with LoRA",
    ),
    "Type fp16 is not supported": Advice(
        "accelerator that DeepSpeed finds (ds_report)",
        "",
        "the GPU; on a CPU no fp16",
        "the one it found computes no fp16, as CPUs without an instruction for it; without a GPU "
        "that PyTorch sees, or with DS_ACCELERATOR=cpu, it takes the CPU",
    ),
    "Type bf16 is not supported": Advice(
        "bf16", "true", "false; fp16, if any", "GPUs before Ampere, as V100 and T4, have no bf16"
    ),
    "'weight' must be 2-D": _GATHERED,
    "NCCL error": Advice("NCCL_DEBUG", "", "INFO", "says which call failed, and between whom"),
    "Socket Timeout": OTHER_LOGS,
}


_OWN_GROUP: Final = Advice(
    "deepspeed.init_distributed()",
    "",
    "before zero.Init or the engine is made",
    "DeepSpeed found one process alone where several run: it counts them once its own group is "
    "there; torch.distributed's alone, as init_process_group makes it, is not enough",
)


def against_exception(text: str, *, several: bool = False) -> tuple[Advice, ...]:
    """What to change; empty where nothing but the code that failed is at fault.

    Args:
        several: the job is known to have more ranks than one.
    """
    wanted = _VARIABLE.search(text)
    if wanted:
        return (Advice(wanted[1], "", wanted[2].rstrip("."), "the exception asks for it"),)
    sizes = _BATCH.search(text)
    if sizes:
        return (_batch(*map(int, sizes.groups()), several=several),)
    known = (advice for words, advice in _BY_TEXT.items() if words in text)
    return (*against_environment(text), *known)[:1]


def _batch(batch: int, each: int, micro_batches: int, ranks: int, *, several: bool) -> Advice:
    """The product that DeepSpeed wants, or the ranks that are missing: one that no launcher started
    counts itself alone, and so does each of several before DeepSpeed's own group is there."""
    product = each * micro_batches * ranks
    if ranks == 1 and batch > product > 0 and not batch % product:
        if several:
            return _OWN_GROUP
        return Advice(
            "number of ranks",
            "1",
            f"{batch // product}, by a launcher (deepspeed, torchrun, accelerate launch)",
            f"train_batch_size {batch} is of as many: DeepSpeed found one process alone, for which "
            f"it would be {product}; under a launcher it does so before init_distributed()",
        )
    why = f"{each} a micro-batch, {micro_batches} micro-batches, {ranks} rank{'s' * (ranks != 1)}"
    return Advice("train_batch_size", str(batch), f"{product}, or left out", why)
