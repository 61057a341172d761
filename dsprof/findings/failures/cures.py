"""What helps against a failure, by its kind and what its message says."""

from __future__ import annotations

import re
from typing import Final

from dsprof.findings.failures.barriers import against_barrier
from dsprof.findings.failures.exceptions import (
    BLOCKING,
    OTHER_LOGS,
    SERIAL,
    SSH,
    against_exception,
)
from dsprof.findings.failures.schedulers import against_reason
from dsprof.findings.finding import Advice

_FAULTY_GPU: Final = Advice(
    "that GPU",
    "",
    "reset it, and leave it out if that comes again (nvidia-smi -q -d ECC, dcgmi diag)",
    "the driver reports a fault of the GPU or its links, and no fault of the program",
)

_BY_KIND: Final = {
    "connection": (OTHER_LOGS,),
    "rendezvous": (
        Advice(
            "MASTER_ADDR, MASTER_PORT; torchrun's --rdzv-endpoint",
            "",
            "reachable from every host",
            "every worker must find the first one there",
        ),
    ),
    "ssh-refused": (SSH,),
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
    "not-scheduled": (
        Advice(
            "kubectl describe node",
            "",
            "compare what it has left with what the pod requests",
            "other pods may hold it, or no node offers it: for GPUs, the device plugin must run",
        ),
    ),
    "not-admitted": (
        Advice(
            "kubectl describe node, logs of the device plugin",
            "",
            "see how many devices it offers, and which are healthy",
            "the node could not hand out the devices that the scheduler had counted",
        ),
        Advice("the pod", "", "delete it and start it again", "Kubernetes does not try it twice"),
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
        BLOCKING,
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

#: Of CUDA's toolkit, as a compiler names it.
_CUDAS_HEADER: Final = (
    r"(?:cuda|cublas|cusparse|cusolver|curand|cufft|cupti|nvrtc|nvml|nvToolsExt|cub/|thrust/|crt/)"
    r"[\w./-]*"
)

#: Kinds of failure that are cured otherwise where their text holds this.
_BY_KIND_AND_TEXT: Final = {
    ("gpu-error", "amdgpu"): Advice(
        "that GPU",
        "",
        "reset it, and leave it out if that comes again (amd-smi metric --ecc)",
        "the driver reports a fault of the GPU or its links, and no fault of the program",
    ),
    ("gpu-fault", "amdgpu"): SERIAL,
    ("build-failed", "Python.h"): Advice(
        "python3-dev", "", "installed", "Python's headers are a package of their own"
    ),
    ("build-failed", rf"(?:fatal|catastrophic) error: .{{0,40}}?\b{_CUDAS_HEADER}"): Advice(
        "CUDA_HOME",
        "",
        "a whole toolkit, of torch's CUDA",
        "packages of the compiler or the runtime alone lack headers",
    ),
    ("build-failed", "(?:fatal|catastrophic) error"): Advice(
        "CPATH",
        "",
        "the folder of that header, once its package is installed",
        "the extension builds on a library whose headers the compiler does not find",
    ),
    ("build-failed", r"You need C\+\+\d{2}"): Advice(
        "DeepSpeed; CC, CXX",
        "",
        "a DeepSpeed as new as torch, and a compiler that knows that standard",
        "the compiler is too old, or was told an older standard",
    ),
    ("build-failed", "Unsupported gpu architecture"): Advice(
        "CUDA_HOME, TORCH_CUDA_ARCH_LIST",
        "",
        "a toolkit that knows that architecture; no architecture but those of the GPUs",
        "this nvcc is too old or too new for it: compute_86 needs CUDA 11.1, compute_89 and 90 "
        "need 11.8, compute_100 and 120 need 12.8; 13 knows none below 75",
    ),
    ("build-failed", "unsupported GNU version"): Advice(
        "CC, CXX", "", "a compiler that CUDA's toolkit takes", "nvcc refuses newer ones"
    ),
    ("build-failed", "cannot find"): Advice(
        "LIBRARY_PATH",
        "",
        "the folder of that library",
        "CUDA's are in the toolkit's lib64, or those of a package in its environment",
    ),
    ("not-admitted", "Task launch"): Advice(
        "sinfo -R, and that node's slurmd.log",
        "",
        "look up why; leave that node out (--exclude)",
        "Slurm could not start the tasks there, none of which has run",
    ),
    ("not-scheduled", "Unable to (?:create step|allocate resources)"): Advice(
        "srun's options",
        "",
        "no more than the job holds (scontrol show job)",
        "Slurm does not give a step what its job did not ask for",
    ),
    ("not-admitted", "pyxis"): Advice(
        "--container-image, enroot's credentials",
        "",
        "an image that every node can fetch; ./IMAGE.sqsh for a file",
        "enroot could not make the container, in which no task has run",
    ),
    ("not-scheduled", "There are not enough slots"): Advice(
        "slots=N of the hostfile, number of processes",
        "",
        "a slot for each process",
        "Open MPI starts no more processes than the hostfile or the scheduler has slots for",
    ),
    (
        "wrong-arguments",
        "(?:Could not find '|Cannot find primary config|You must specify ')",
    ): Advice(
        "defaults list, command line, config_path",
        "",
        "a configuration that is there",
        "Hydra lists behind this line what there is, or where it looked",
    ),
    ("network-error", "NET/OFI"): Advice(
        "fi_info; security group of the nodes",
        "",
        "adapters there on every node; all traffic within the group allowed",
        "a peer did not answer over libfabric: or its process had ended before",
    ),
    ("exit", "failed with return code list"): Advice(
        "the node whose code is not 137",
        "",
        "look for its last messages",
        "where one command fails, SkyPilot ends the others with 137",
    ),
    ("exit", r"(?:AzureMLCompute|\w{1,40} exited with status code)"): Advice(
        "user_logs/std_log*.txt, azureml-logs/70_driver_log.txt",
        "",
        "look for the script's own error, on each node",
        "Azure only says how it ended",
    ),
    ("exit", r"(?:AlgorithmError|the script's exit code|ExitCode \d)"): Advice(
        "CloudWatch, /aws/sagemaker/TrainingJobs",
        "",
        "look for the script's own error, in the stream of each host (algo-1, ...)",
        "SageMaker only says how it ended",
    ),
    ("exit", "its pod exited"): Advice(
        "kubectl logs --previous",
        "",
        "see the pod's own last lines, and kubectl describe pod",
        "the operator does not say why it failed",
    ),
    ("exit", "DLRover found its node failed"): Advice(
        "kubectl describe pod, of that node's pod",
        "",
        "look why it ended: evicted, deleted, out of memory or its node lost",
        "DLRover's master only sees that its state changed",
    ),
    ("exit", "execve"): Advice(
        "PATH on that node",
        "",
        "the environment of the job (module load, conda activate, srun --export)",
        "Slurm did not find the program that it was told to run",
    ),
    ("exit", "Error executing job with"): Advice(
        "stderr of that process",
        "",
        "look for the traceback",
        "Hydra raises the error behind this line",
    ),
    ("exit", "Back-off restarting"): Advice(
        "kubectl logs --previous",
        "",
        "see the container's own last lines",
        "the event does not say why it ends again and again",
    ),
    ("left", "ended in good order"): Advice(
        "number of steps of each rank",
        "",
        "the same",
        "a rank with fewer batches leaves the others in a collective without it",
    ),
    ("left", "code 0 without closing"): Advice(
        "os._exit in the script",
        "",
        "look for it, and for what ends a process from C++",
        "Python's own end closes a recording: it was skipped",
    ),
    ("port-in-use", "HCCL: "): Advice(
        "HCCL_IF_BASE_PORT, HCCL_NPU_SOCKET_PORT_RANGE",
        "",
        "others, or auto, if jobs share hosts or NPUs; else end what is left of the job before",
        "HCCL listens on fixed ports: by default 60000 and up on a host, 16666 on an NPU",
    ),
    ("rendezvous", "EI0006"): Advice(
        "HCCL_CONNECT_TIMEOUT",
        "",
        "longer than 120 s, if a rank is only late",
        "a rank that failed before never connects: look for other errors first",
    ),
    ("rendezvous", r"(?:store based barrier|barrier of c10d's|\d+/\d+ clients joined)"): Advice(
        "log of each host",
        "",
        "see which ranks did not start, or did not reach MASTER_ADDR",
        "the store itself was reached, and counts who came",
    ),
    ("rendezvous", r"172\.17\.\d{1,3}\.\d{1,3}"): Advice(
        "MASTER_ADDR",
        "an address of docker's bridge",
        "one of the hosts' network (docker run --network=host)",
        "each host has such a bridge of its own, which no other host reaches",
    ),
    ("network-error", "EI0013"): Advice(
        "hccn_tool -i DEVICE -link -g",
        "",
        "links up, on both ends",
        "packets were lost, or the peer had ended already",
    ),
    ("network-error", "No route to"): Advice(
        "NCCL_SOCKET_IFNAME",
        "",
        "an interface by which all hosts reach each other, with no firewall between them",
        "NCCL chose an address that cannot be reached from here",
    ),
    (
        "network-error",
        r"(?:Call to (?:recv|send)\w{0,5} (?:from|to)|socket progress error)",
    ): Advice(
        "log of that peer, or of its host",
        "",
        "see whether its process, or its network, went first",
        "the connection had been made, so its address is one that can be reached",
    ),
    ("network-error", r"ibv_(?:create|reg|alloc)_\w{1,20}"): Advice(
        "ulimit -l",
        "",
        "unlimited, in the container too",
        "InfiniBand pins the memory that it sends from, and was refused a resource",
    ),
    ("network-error", r"with (?:error |status=)4\b"): Advice(
        "NCCL_NET_GDR_LEVEL",
        "",
        "LOC, as a test; if that helps, look at nvidia_peermem or dma-buf, and at the IOMMU",
        "with GPUDirect RDMA the adapter reads and writes memory of GPUs, which it may not reach",
    ),
    ("network-error", "ibv_modify_qp"): Advice(
        "NCCL_IB_HCA, NCCL_IB_GID_INDEX, NCCL_CROSS_NIC",
        "",
        "adapters that reach each other (ib_write_bw between the hosts)",
        "two adapters of InfiniBand or RoCE found no way to each other",
    ),
    (
        "network-error",
        "(?:Connection refused|Connection timed out|socket(?:Start|Poll)Connect)",
    ): Advice(
        "NCCL_SOCKET_IFNAME",
        "",
        "an interface by which all hosts reach each other",
        "NCCL chose an address that others cannot reach, or the peer had ended already",
    ),
    ("ssh-refused", "Could not resolve hostname"): Advice(
        "hostfile, DNS", "", "names that each host resolves", "ssh found no address for that one"
    ),
    ("rendezvous", "RendezvousTimeoutError"): Advice(
        "--nnodes, --rdzv-id, --rdzv-endpoint",
        "",
        "the same on every node; each of them started, and the endpoint reachable",
        "not as many nodes as --nnodes asks for had met there in time, or this one came too late",
    ),
    ("rendezvous", "(?:RendezvousConnectionError|waitForInput)"): Advice(
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
        "tmux, screen or setsid",
        "",
        "start the job in one of them",
        "the terminal or SSH session of the job was closed; nohup alone does not help, since "
        "torchrun sets its own handler of that signal",
    ),
    ("signal", "got signal 15"): Advice(
        "sacct, kubectl get events, the scheduler's own log",
        "",
        "look up who ended the job",
        "the launcher itself was told to stop; this log does not say by whom",
    ),
}


def cures(kind: str, text: str, *, several: bool = False) -> tuple[Advice, ...]:
    """What to change; empty where nothing but the code that failed is at fault.

    Args:
        several: the job is known to have more ranks than one.
    """
    if kind == "rendezvous" and (told := against_barrier(text)):
        return told
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
    return against_exception(text, several=several)
