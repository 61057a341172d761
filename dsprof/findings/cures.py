"""What helps against a failure: by its kind, and by what an exception says."""

from __future__ import annotations

import re
from typing import Final

from dsprof.findings.finding import Advice
from dsprof.findings.schedulers import against_reason

_SSH: Final = Advice(
    "ssh HOST hostname",
    "",
    "works without a password",
    "the launcher starts the other nodes over ssh",
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

_OF_STEP: Final = Advice(
    "training.log in the output folder of that step",
    "",
    "look for the first error there",
    "DeepSpeed-Chat's launcher only tells how the step's script ended",
)
_FAULTY_GPU: Final = Advice(
    "that GPU",
    "",
    "reset it, and leave it out if that comes again (nvidia-smi -q -d ECC, dcgmi diag)",
    "the driver reports a fault of the GPU or its links, and no fault of the program",
)

#: Where what is told only follows from what happened elsewhere.
OTHER_LOGS: Final = Advice(
    "logs of the other ranks and hosts",
    "",
    "look for the first failure there",
    "what is told here follows from another failure",
)

_BY_KIND: Final = {
    "connection": (OTHER_LOGS,),
    "rendezvous": (
        Advice(
            "MASTER_ADDR, MASTER_PORT, NCCL_SOCKET_IFNAME",
            "",
            "reachable from every host",
            "every worker must find the first one there",
        ),
    ),
    "ssh-refused": (_SSH,),
    "port-in-use": (
        Advice("--master_port", "", "a free port", "a job still running may hold the old one"),
    ),
    "cancelled": (
        Advice(
            "sacct, or the scheduler's own log",
            "",
            "look up who ended the job",
            "this log gives no reason; no rank caused it",
        ),
    ),
    "overflow-limit": (
        Advice("bf16.enabled", "", "true", "same range as fp32: no loss scale needed"),
        Advice("learning rate", "", "lower", "a diverged model overflows at any scale"),
    ),
    "checkpoint-failed": (
        Advice("storage", "", "space and rights", "what is not written cannot be resumed from"),
    ),
    "network-error": (
        Advice(
            "ibstat, ibv_devinfo",
            "",
            "ports active on both hosts, in the container too",
            "a port, cable or switch may be down, or the adapter not visible",
        ),
        Advice("NCCL_DEBUG", "", "INFO", "says which adapter and which peer"),
    ),
    "shm-full": (
        Advice(
            "docker --shm-size, --ipc=host",
            "",
            "a larger /dev/shm",
            "a data loader's workers hand their batches over in shared memory",
        ),
        Advice("DataLoader(num_workers=...)", "", "fewer", "each keeps its batches there"),
    ),
    "build-failed": (
        Advice(
            "TORCH_EXTENSIONS_DIR, CUDA_HOME",
            "",
            "writable; the toolkit of torch's CUDA",
            "extensions are compiled there, by that toolkit",
        ),
    ),
    "gpu-lost": (
        Advice(
            "that host",
            "",
            "leave it out until it was restarted and its GPU checked",
            "the usual reasons are heat, power, its slot or a defect",
        ),
    ),
    "gpu-error": (_FAULTY_GPU,),
    "gpu-fault": (
        Advice(
            "CUDA_LAUNCH_BLOCKING", "", "1, for one run", "a traceback then ends where it failed"
        ),
        Advice(
            "that GPU",
            "",
            "check it (dcgmi diag), if other programs fail on it, too",
            "a broken one reports the same",
        ),
    ),
    "wrong-arguments": (
        Advice(
            "command line of the script",
            "",
            "what its --help lists",
            "a launcher passes on what follows the script's name, and may add --local_rank",
        ),
    ),
}

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

#: What is in an exception's text -> what helps.
_BY_TEXT: Final = {
    "Check batch related parameters": Advice(
        "train_batch_size",
        "",
        "micro-batch x accumulation x ranks, or left out",
        "DeepSpeed rejects any other number",
    ),
    "the version torch was compiled with": Advice(
        "CUDA_HOME",
        "",
        "a toolkit of torch's CUDA version",
        "DeepSpeed compiles its operators with it",
    ),
    "CUDA_HOME does not exist": Advice(
        "CUDA_HOME", "", "the folder of a CUDA toolkit", "DeepSpeed compiles its operators with it"
    ),
    "not reachable via ssh": _SSH,
    "timer has already been started": Advice(
        "wall_clock_breakdown",
        "true",
        "false",
        "since 0.18.3 DeepSpeed cannot time its pipeline engine (0.19.8 still cannot)",
    ),
    "'numactl'": Advice(
        "--bind_cores_to_rank", "", "left out, or numactl installed", "it needs that program"
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
    "Too many open files": Advice(
        "ulimit -n",
        "",
        "higher; or fewer workers of data loaders",
        "tensors that workers hand over keep files open: the sharing strategy file_system does not",
    ),
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
    "illegal memory access": Advice(
        "CUDA_LAUNCH_BLOCKING", "", "1, for one run", "the traceback then ends where it failed"
    ),
    "uncorrectable ECC error": Advice(
        "nvidia-smi -q -d ECC",
        "",
        "exclude that GPU and have it checked",
        "its memory is faulty, not the job",
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
    "PytorchStreamWriter failed": Advice(
        "storage", "", "space", "a full disk or quota while a checkpoint was written"
    ),
    "srcIndex < srcSelectDimSize": _INDEX,
    "index out of bounds": _INDEX,
    "device-side assert": Advice(
        "CUDA_LAUNCH_BLOCKING", "", "1, for one run", "the traceback then ends where it failed"
    ),
    "CUBLAS_STATUS_NOT_INITIALIZED": Advice(
        "nvidia-smi on that host",
        "",
        "see how full the GPU is",
        "cuBLAS found no room for its workspace, or an earlier kernel had failed already",
    ),
    "Memory access fault by GPU": Advice(
        "AMD_SERIALIZE_KERNEL", "", "3, for one run", "the fault is then reported where it happened"
    ),
    "HSA_STATUS_ERROR_OUT_OF_RESOURCES": Advice(
        "rocm-smi on that host",
        "",
        "see how full the GPU is",
        "its runtime could not allocate what it needs: memory, or the host's threads and events",
    ),
    "Duplicate GPU detected": Advice(
        "CUDA_VISIBLE_DEVICES, torch.cuda.set_device(local_rank)",
        "",
        "one GPU for each rank",
        "two ranks chose the same one, which NCCL refuses",
    ),
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
    "A worker died or was killed": _GONE_OF_RAY,
    "Bootstrap Root": Advice(
        "RANK, WORLD_SIZE, MASTER_PORT",
        "",
        "each rank once, the same world size for all, one job per port",
        "processes connected that do not belong together",
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
    "no kernel image is available": Advice(
        "torch, TORCH_CUDA_ARCH_LIST", "", "built for that GPU", "it was compiled for other GPUs"
    ),
    "NCCL error": Advice("NCCL_DEBUG", "", "INFO", "says which call failed, and between whom"),
}


#: Kinds of failure that are cured otherwise where their text holds this.
_BY_KIND_AND_TEXT: Final = {
    ("left", "ended in good order"): Advice(
        "number of steps of each rank",
        "",
        "the same",
        "a rank with fewer batches leaves the others in a collective without it",
    ),
    ("rendezvous", "EI0006"): Advice(
        "HCCL_CONNECT_TIMEOUT",
        "",
        "longer than 120 s, if a rank is only late",
        "a rank that failed before never connects: look for other errors first",
    ),
    ("network-error", "EI0013"): Advice(
        "hccn_tool -i DEVICE -link -g",
        "",
        "links up, on both ends",
        "packets were lost, or the peer had ended already",
    ),
    ("network-error", "No route to host"): Advice(
        "NCCL_SOCKET_IFNAME",
        "",
        "an interface by which all hosts reach each other",
        "NCCL chose an address that others cannot reach",
    ),
    ("network-error", r"ibv_(?:create|reg|alloc)_\w{1,20}"): Advice(
        "ulimit -l",
        "",
        "unlimited, in the container too",
        "InfiniBand pins the memory that it sends from, and was refused a resource",
    ),
    ("network-error", "ibv_modify_qp"): Advice(
        "NCCL_IB_HCA, NCCL_IB_GID_INDEX, NCCL_CROSS_NIC",
        "",
        "adapters that reach each other (ib_write_bw between the hosts)",
        "two adapters of InfiniBand or RoCE found no way to each other",
    ),
    ("network-error", "(?:Connection refused|Connection timed out)"): Advice(
        "NCCL_SOCKET_IFNAME",
        "",
        "an interface by which all hosts reach each other",
        "NCCL chose an address that others cannot reach, or the peer had ended already",
    ),
    ("ssh-refused", "Could not resolve hostname"): Advice(
        "hostfile, DNS", "", "names that each host resolves", "ssh found no address for that one"
    ),
    ("rendezvous", "RendezvousConnectionError"): Advice(
        "log of the node that hosts the rendezvous",
        "",
        "look whether its launcher ended first; MASTER_ADDR, MASTER_PORT reachable",
        "the store through which all nodes meet runs there",
    ),
    ("wrong-arguments", "can't open file"): Advice(
        "path of the script",
        "",
        "one that exists on every host, seen from the folder of the launch",
        "Python did not find the file that it was told to run",
    ),
    ("signal", "got signal 1"): Advice(
        "nohup, tmux or setsid",
        "",
        "start the job with one of them",
        "the terminal or SSH session of the job was closed",
    ),
    ("signal", "got signal 15"): Advice(
        "sacct, kubectl get events, the scheduler's own log",
        "",
        "look up who ended the job",
        "the launcher itself was told to stop; this log does not say by whom",
    ),
}


def cures(kind: str, text: str) -> tuple[Advice, ...]:
    """What to change; empty where nothing but the code that failed is at fault."""
    known = [
        advice
        for (of, words), advice in _BY_KIND_AND_TEXT.items()
        if of == kind and re.search(rf"\b{words}\b", text)
    ]
    if known:
        return tuple(known[:1])
    if kind == "cancelled":
        return against_reason(text) or _BY_KIND[kind]
    if kind != "exception":
        return _BY_KIND.get(kind, ())
    wanted = _VARIABLE.search(text)
    if wanted:
        return (Advice(wanted[1], "", wanted[2].rstrip("."), "the exception asks for it"),)
    sizes = _BATCH.search(text)
    if sizes:
        each, micro_batches, ranks = map(int, sizes.group(2, 3, 4))
        why = f"{each} a micro-batch, {micro_batches} micro-batches, {ranks} ranks"
        product = str(each * micro_batches * ranks)
        return (Advice("train_batch_size", sizes[1], f"{product}, or left out", why),)
    return tuple(advice for words, advice in _BY_TEXT.items() if words in text)[:1]
