"""What an exception says is advised where it says what it wants."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.findings import findings_of
from dsprof.findings.failures import ends
from dsprof.findings.failures.cures import cures
from dsprof.run import load
from tests.findings.plants import alone, problem, run_of
from tests.loaded import run_of_text


@pytest.mark.parametrize(
    ("text", "setting", "to"),
    [
        (
            "RuntimeError: it requires the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1",
            "CUDA_DEVICE_MAX_CONNECTIONS",
            "1",
        ),
        (
            "AssertionError: bwd_microstep timer has already been started",
            "wall_clock_breakdown",
            "false",
        ),
        (
            "RuntimeError: still have inflight params [{'id': 57, 'status': 'INFLIGHT'}]",
            "DeepSpeed",
            "0.15.3 or newer; until then zero_optimization.stage3_prefetch_bucket_size 0",
        ),
        (
            "ImportError: /home/u/fused_adam/fused_adam.so: cannot open shared object file",
            "TORCH_EXTENSIONS_DIR",
            "that folder removed, so that it is compiled anew",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'numactl'",
            "--bind_cores_to_rank",
            "left out, or numactl installed",
        ),
        (
            "AssertionError: no_sync context manager is incompatible with gradient partitioning",
            "DeepSpeed, accelerate, transformers",
            "DeepSpeed before 0.16, or newer ones of the others",
        ),
        ("OSError: [Errno 28] No space left on device", "storage", "space"),
        (
            "OSError: [Errno 122] Disk quota exceeded",
            "quota of the user or folder",
            "more, or fewer files kept",
        ),
        (
            "OSError: [Errno 24] Too many open files",
            "ulimit -n",
            "higher; or fewer workers of data loaders",
        ),
        (
            "MaxRetryError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries",
            "HF_HUB_OFFLINE",
            "1, with models and data downloaded before",
        ),
        (
            "ValueError: Hostfile contains a bad entry: w1 lots=8",
            "hostfile",
            "one line for each host: NAME slots=N",
        ),
        (
            "ValueError: No slot '1' specified on host 'localhost'",
            "--include, --exclude, CUDA_VISIBLE_DEVICES",
            "numbers that the hostfile has; without one, those of visible GPUs from 0 on",
        ),
        (
            "RuntimeError: unable to write to file </torch_31_77>: No space left on device (28)",
            "docker --shm-size, --ipc=host",
            "a larger /dev/shm",
        ),
        (
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error.",
            "DataLoader(num_workers=...)",
            "fewer, or a larger /dev/shm (docker --shm-size)",
        ),
        (
            "RuntimeError: DataLoader worker (pid 77) exited unexpectedly with exit code 1.",
            "DataLoader(num_workers=...)",
            "0, for one run",
        ),
        (
            "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 2368 vs 2260",
            "storage",
            "space",
        ),
        ("RuntimeError: basic_ios::clear: iostream error", "storage", "space"),
        (
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.",
            "DataLoader(num_workers=...)",
            "fewer",
        ),
        (
            (
                "AssertionError: Check batch related parameters. train_batch_size is not equal to "
                "micro_batch_per_gpu * gradient_acc_step * world_size 16 != 2 * 1 * 4"
            ),
            "train_batch_size",
            "8, or left out",
        ),
        (
            "NCCL: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1c000",
            "CUDA_VISIBLE_DEVICES, torch.cuda.set_device(local_rank)",
            "one GPU for each rank",
        ),
        (
            (
                "EJ0001: Failed to initialize the HCCP process. Reason: Maybe the last training "
                "process is running."
            ),
            "npu-smi info",
            "end what is left of the job before, wait 10 s",
        ),
        (
            "ModuleNotFoundError: No module named 'transformers.deepspeed'",
            "version of transformers",
            "one that has that module",
        ),
        (
            "ModuleNotFoundError: No module named 'utils.text'; 'utils' is not a package",
            "files beside the script",
            "none of the name of a package",
        ),
        (
            "ImportError: cannot import name 'log' from 'torch.elastic' (/opt/site-packages/a)",
            "version of torch",
            "one that has that name",
        ),
        (
            "ImportError: cannot import name 'f' from partially initialized module 'queue' (a.py)",
            "files beside the script",
            "none of the name of a package",
        ),
        (
            "RuntimeError: DataLoader worker (pid 17) is killed by signal: Segmentation fault. ",
            "DataLoader(num_workers=...)",
            "0, for one run, with PYTHONFAULTHANDLER 1",
        ),
        (
            "RuntimeError: DataLoader worker (pid 17) is killed by signal: Terminated.",
            "logs of the other ranks, and of the scheduler",
            "look for what ended the job",
        ),
        (
            (
                "AssertionError: Check batch related parameters. train_batch_size is not equal to "
                "micro_batch_per_gpu * gradient_acc_step * world_size 256 != 2 * 18 * 7"
            ),
            "train_batch_size",
            "252, or left out",
        ),
        (
            (
                "AssertionError: Check batch related parameters. train_batch_size is not equal to "
                "micro_batch_per_gpu * gradient_acc_step * world_size 16 != 2 * 1 * 1"
            ),
            "number of ranks",
            "8, by a launcher (deepspeed, torchrun, accelerate launch)",
        ),
    ],
)
def test_an_exception_that_says_what_it_wants_is_advised(text: str, setting: str, to: str) -> None:
    assert [(advice.setting, advice.to) for advice in cures("exception", text)] == [(setting, to)]


@pytest.mark.parametrize(
    ("kind", "text", "setting"),
    [
        ("exception", "RuntimeError: basic_ios::clear: iostream error", "storage"),
        ("build-failed", "ld: cannot find -lcurand", "LIBRARY_PATH"),
    ],
)
def test_what_is_told_of_a_failure_is_told_with_its_cure(
    kind: str, text: str, setting: str
) -> None:
    found = alone(run_of([problem(kind, text, rank=0)]), "rank-died")
    assert [advice.setting for advice in found.advice] == [setting]


@pytest.mark.parametrize("sizes", ["4 != 2 * 4 * 1", "12 != 2 * 4 * 1", "16 != 0 * 4 * 1"])
def test_a_batch_that_fits_no_more_ranks_than_were_counted_is_to_be_another(sizes: str) -> None:
    said = "AssertionError: Check batch related parameters. train_batch_size is not equal to"
    text = f"{said} micro_batch_per_gpu * gradient_acc_step * world_size {sizes}"
    found = alone(run_of([problem("exception", text, rank=0)]), "rank-died")
    assert [advice.setting for advice in found.advice] == ["train_batch_size"]


def test_ranks_that_each_count_themselves_alone_lack_deepspeeds_own_group() -> None:
    said = "AssertionError: Check batch related parameters. train_batch_size is not equal to"
    text = f"{said} micro_batch_per_gpu * gradient_acc_step * world_size 8 != 2 * 2 * 1"
    found = alone(run_of(problem("exception", text, rank=rank) for rank in (0, 1)), "rank-died")
    assert [advice.setting for advice in found.advice] == ["deepspeed.init_distributed()"]
    told = alone(run_of([problem("exception", text, rank=0)], world_size=2), "rank-died")
    assert told.advice == found.advice


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("ValueError: Please correct the following DeepSpeed config values", "DeepSpeed's JSON"),
        ("RuntimeError: Expected to mark a variable ready only once.", "gradient_checkpointing"),
        ("RuntimeError: Expected to have finished reduction in the prior iteration", "ddp_find_un"),
        ("RuntimeError: element 0 of tensors does not require grad", "gradient checkpointing"),
        ("RuntimeError: 'weight' must be 2-D", "deepspeed.zero.GatheredParameters"),
        ("ValueError: Type fp16 is not supported on your device.", "accelerator that DeepSpeed"),
        ("ValueError: Type bf16 is not supported.", "bf16"),
        ("RuntimeError: Socket Timeout", "logs of the other ranks and hosts"),
    ],
)
def test_what_training_needs_of_its_parts_is_advised_on(text: str, setting: str) -> None:
    (advice,) = cures("exception", text)
    assert advice.setting.startswith(setting)


def test_any_other_exception_is_the_code_s_own() -> None:
    run = run_of([problem("exception", "KeyError: 'labels'", rank=0)])
    assert alone(run, "rank-died").advice == ()


@pytest.mark.parametrize(
    ("reason", "setting"),
    [
        (" DUE TO TIME LIMIT", "time limit of the job"),
        (" DUE TO PREEMPTION", "checkpoints"),
        (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "sinfo -R"),
        ("", "sacct, or the scheduler's own log"),
    ],
)
def test_a_job_that_the_scheduler_ended_is_advised_on_its_reason(reason: str, setting: str) -> None:
    said = f"*** STEP 7.0 ON node7 CANCELLED AT 2026-03-25T18:00:12{reason} ***"
    found = alone(run_of([problem("cancelled", said)]), "rank-died")
    assert [advice.setting for advice in found.advice] == [setting]


#: ninja's, as torch.utils.cpp_extension raises it.
NINJA = "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1."
BUILD = f"""\
csrc/includes/cpu_adam.h:14:10: fatal error: cuda_fp16.h: No such file or directory
ninja: build stopped: subcommand failed.
Traceback (most recent call last):
  File "/opt/torch/utils/cpp_extension.py", line 1900, in _run_ninja_build
    subprocess.run(
{NINJA}

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "train.py", line 478, in <module>
    main()
RuntimeError: Error building extension 'cpu_adam'
Traceback (most recent call last):
  File "train.py", line 478, in <module>
    main()
ImportError: /home/u/.cache/torch_extensions/py310_cu118/cpu_adam/cpu_adam.so: cannot open shared \
object file: No such file or directory
"""


@pytest.mark.parametrize(
    ("without", "told"),
    [
        ((), "fatal error: cuda_fp16.h: No such file or directory"),
        (("fatal error",), "RuntimeError: Error building extension 'cpu_adam'"),
        (("fatal error", "Error building"), "ninja returned non-zero exit status 1"),
    ],
)
def test_of_a_build_that_failed_the_line_is_told_that_says_most(
    without: tuple[str, ...], told: str
) -> None:
    lines = (line for line in BUILD.splitlines(keepends=True))
    run = run_of_text(*(line for line in lines if not any(word in line for word in without)))
    assert alone(run, "rank-died").title == f"A process could not build an extension: {told}"


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("fatal error: cusparse.h: No such file or directory", "CUDA_HOME"),
        ("fatal error: cub/cub.cuh: No such file or directory", "CUDA_HOME"),
        ('catastrophic error: cannot open source file "cusparse.h"', "CUDA_HOME"),
        ("fatal error: 'cuda.h' file not found", "CUDA_HOME"),
        ("fatal error: oneapi/ccl.hpp: No such file or directory", "CPATH"),
        ("#error You need C++17 to compile PyTorch", "DeepSpeed; CC, CXX"),
        ("fatal error: Python.h: No such file or directory", "python3-dev"),
        ("unsupported GNU version! gcc versions later than 12 are not supported", "CC, CXX"),
        ("ld: cannot find -lcurand", "LIBRARY_PATH"),
        ("RuntimeError: Error building extension 'cpu_adam'", "TORCH_EXTENSIONS_DIR, CUDA_HOME"),
    ],
)
def test_a_build_that_failed_is_advised_on_what_it_missed(text: str, setting: str) -> None:
    assert [advice.setting for advice in cures("build-failed", text)] == [setting]


@pytest.mark.parametrize("got", ["Socket Timeout", "Connection reset by peer"])
def test_a_rank_that_could_not_start_nccl_points_to_rank_0(got: str) -> None:
    said = (
        "[7] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
        f"key-value store by key '0', but store->get('0') got error: {got}"
    )
    found = alone(run_of_text(f"network set up issue.{said}\n"), "rank-died")
    assert found.title.startswith("Rank 7 got no answer of the rank that starts NCCL: [7] is")
    assert [advice.setting for advice in found.advice] == ["log of rank 0"]


@pytest.mark.parametrize(
    ("said", "title"),
    [
        (
            (
                "Waiting in store based barrier to initialize process group for rank: 3, key: "
                "store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)"
            ),
            "Rank 3 waits for the other workers: 7 of 8 ranks have come to the barrier of c10d's",
        ),
        (
            (
                "[W213 09:10:11.25 TCPStore.cpp:358] TCP client failed to connect/validate to "
                "host node7:29500 - retrying (try=0, timeout=600000ms, delay=56413ms): The client"
            ),
            "A process did not find the other workers: TCP client failed to connect/validate to",
        ),
        (
            "EJ0003: Failed to bind the IP port. Reason: The IP address and port are bound.",
            "A process could not open a port of HCCL: it is taken",
        ),
        (
            (
                "ERROR:torch.distributed.elastic.multiprocessing.errors.error_handler:{\n"
                '  "message": {\n    "message": "RendezvousConnectionError: The store has failed.'
            ),
            "A process did not reach the rendezvous store, or lost it: Rendezvous",
        ),
    ],
)
def test_who_could_not_meet_the_others_is_told_by_what_failed(said: str, title: str) -> None:
    assert alone(run_of_text(f"{said}\n"), "rank-died").title.startswith(title)


def test_a_container_that_kubernetes_starts_again_and_again_is_asked_for_its_own_log() -> None:
    found = alone(run_of([problem("exit", "Back-off restarting failed container a")]), "rank-died")
    assert found.title == "A process ended again and again: Back-off restarting failed container a"
    assert [advice.setting for advice in found.advice] == ["kubectl logs --previous"]


@pytest.mark.parametrize(
    ("said", "title", "setting"),
    [
        (
            "srun: error: Task launch for 36.0 failed on node cn131: Job credential expired",
            "A step of Slurm was not admitted by its node: Task launch for 36.0 failed",
            "sinfo -R, and that node's slurmd.log",
        ),
        (
            "srun: error: Unable to create step for job 36: Memory required by task is not here",
            "A step of Slurm found no node that can take it: Unable to create step for job 36",
            "srun's options",
        ),
        (
            "slurmstepd: error: execve(): deepspeed: No such file or directory",
            "A process exited with an error: execve(): deepspeed: No such file or directory",
            "PATH on that node",
        ),
        (
            (
                "slurmstepd: error: pyxis:     [ERROR] No such file or directory: /x.sqsh\n"
                "slurmstepd: error: pyxis: couldn't start container\n"
                "srun: error: node7: task 0: Exited with exit code 1"
            ),
            "A step of Slurm could not start its container: pyxis: [ERROR] No such file",
            "--container-image, enroot's credentials",
        ),
        (
            (
                "There are not enough slots available in the system to satisfy the 16\n"
                "slots that were requested by the application:"
            ),
            "mpirun has no slots for all processes: There are not enough slots",
            "slots=N of the hostfile, number of processes",
        ),
        (
            (
                "srun: error: Node failure on node8\n"
                "slurmstepd: error: *** JOB 7 ON node7 CANCELLED AT 2026-04-20T09:09:37 "
                "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
            ),
            "node8 no longer answered: Node failure on node8",
            "sinfo -R",
        ),
        (
            "In 'config': Could not find 'model/tiny'\n\nAvailable options in 'model':",
            "A process did not find a configuration: Could not find 'model/tiny'",
            "defaults list, command line, config_path",
        ),
    ],
)
def test_what_could_not_start_or_was_lost_is_told_and_advised(
    said: str, title: str, setting: str
) -> None:
    found = alone(run_of_text(f"{said}\n"), "rank-died")
    assert found.title.startswith(title)
    assert [advice.setting for advice in found.advice] == [setting]


def test_a_pod_that_no_node_can_take_is_said_and_its_requests_are_compared() -> None:
    said = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu"
    found = alone(run_of([problem("not-scheduled", said)]), "rank-died")
    assert found.title == f"A pod found no node that can take it: {said}"
    assert [advice.setting for advice in found.advice] == ["kubectl describe node"]


def test_a_fault_that_amds_driver_reports_is_not_looked_for_with_nvidias_tools() -> None:
    said = "amdgpu 0000:15:00.0: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!"
    found = alone(run_of([problem("gpu-error", said)]), "rank-died")
    assert "amd-smi" in found.advice[0].to
    said = "amdgpu 0000:3d:00.0: [mmhub0] no-retry page fault"
    found = alone(run_of([problem("gpu-fault", said)]), "rank-died")
    assert [advice.setting for advice in found.advice] == ["AMD_SERIALIZE_KERNEL"]


def test_a_pod_that_its_node_did_not_admit_is_said_and_its_devices_are_looked_for() -> None:
    said = "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu"
    found = alone(run_of([problem("not-admitted", said)]), "rank-died")
    assert found.title.startswith("A pod was not admitted by its node: Allocate failed")
    assert found.advice[0].setting.startswith("kubectl describe node")


@pytest.mark.parametrize(
    "said", ["Preempted by pod 6a0f on node gpu-7", "Preempted in order to admit critical pod"]
)
def test_a_pod_that_was_preempted_is_advised_to_resume(said: str) -> None:
    found = alone(run_of([problem("cancelled", said)]), "rank-died")
    assert [advice.setting for advice in found.advice] == ["checkpoints"]


@pytest.mark.parametrize(
    ("resource", "setting"),
    [
        ("memory", "resources.requests.memory"),
        ("ephemeral-storage", "resources.requests.ephemeral-storage"),
    ],
)
def test_a_pod_that_kubernetes_evicted_is_advised_on_what_its_node_ran_short_of(
    resource: str, setting: str
) -> None:
    said = f"Message: The node was low on resource: {resource}. Container a was using 5Gi"
    found = alone(run_of_text(said), "rank-died")
    assert "was ended by the scheduler: The node was low on" in found.title
    assert [advice.setting for advice in found.advice] == [setting]


SAID = [
    ("rendezvous", "EI0006: Getting socket times out.", "HCCL_CONNECT_TIMEOUT"),
    ("rendezvous", "timed out while trying to connect to (172.17.0.2, 29500)", "MASTER_ADDR"),
    ("rendezvous", "1 of 8 ranks have come to the barrier of c10d's store", "log of each host"),
    ("rendezvous", "DistStoreError: Timed out. 7/8 clients joined.", "log of each host"),
    ("exception", "HW Exception by GPU node-9 reason :GPU Hang", "dmesg on that host"),
    ("exception", "aborting with error : HSA_STATUS_ERROR_EXCEPTION", "AMD_SERIALIZE_KERNEL"),
    ("exception", "RuntimeError: rank 0 has inconsistent 0 params.", "NCCL_DEBUG"),
    (
        "exception",
        "RuntimeError: HIP error: an illegal memory access was encountered",
        "AMD_SERIALIZE_KERNEL",
    ),
    ("exception", "RuntimeError: received 0 items of ancdata", "ulimit -n"),
    (
        "network-error",
        "NET/OFI completed with error. RC: 107. Error: 4 (Unresponsive receiver)",
        "fi_info; security group of the nodes",
    ),
    ("exit", "failed with return code list: [137, 1]", "the node whose code is not 137"),
    ("cancelled", "Runner interrupted due to worker preemption", "checkpoints"),
    ("cancelled", "Task's current input hit its timeout of 60s", "time limit of the job"),
    ("network-error", "Connect to 10.0.0.7<1> failed : No route to host", "NCCL_SOCKET_IFNAME"),
    ("network-error", "Net : Connect to 10.0.0.7<1> failed : No route to", "NCCL_SOCKET_IFNAME"),
    ("rendezvous", "3 of 8 ranks have come to the barrier of c10d's store", "log of each host"),
    ("rendezvous", "8 of 4 ranks have come to the barrier of c10d's store", "MASTER_PORT"),
    (
        "rendezvous",
        (
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, "
            "for key: store_based_barrier_key:1 (world_size=8, worker_count=16, timeout=0:30:00)"
        ),
        "MASTER_PORT",
    ),
    (
        "rendezvous",
        (
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 7, "
            "for key: store_based_barrier_key:32 (world_size=8, worker_count=4, timeout=0:00:30)"
        ),
        "torch.distributed.new_group()",
    ),
    (
        "network-error",
        "Net : Call to recv from 10.0.0.7<1> failed : Connection timed out",
        "log of that peer, or of its host",
    ),
    (
        "network-error",
        "Connect to 10.0.0.7<1> failed : Connection refused",
        "NCCL_SOCKET_IFNAME",
    ),
    (
        "network-error",
        "socketStartConnect: Connect to 10.0.0.7<1> failed : Software caused connection abort",
        "NCCL_SOCKET_IFNAME",
    ),
    (
        "network-error",
        "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1",
        "NCCL_IB_HCA, NCCL_IB_GID_INDEX, NCCL_CROSS_NIC",
    ),
    ("network-error", "Call to ibv_create_qp failed", "ulimit -l"),
    ("ssh-refused", "ssh: Could not resolve hostname w1: Name unknown", "hostfile, DNS"),
    ("exception", "torch.x.RendezvousClosedError", "logs of the other nodes"),
    (
        "exception",
        "NCCL: ncclSocketInit: family 59936 is neither AF_INET(2) nor AF_INET6(10)",
        "NCCL_SOCKET_IFNAME",
    ),
    (
        "exception",
        "NCCL: Bootstrap Root : rank 1 of 8 ranks has already checked in",
        "RANK, WORLD_SIZE, MASTER_PORT",
    ),
    (
        "exception",
        "RuntimeError: Error(s) in loading state_dict for GPT2Model:",
        "the model's settings",
    ),
    (
        "exception",
        "NCCL: Mismatched collective detected",
        "branches that depend on data or rank",
    ),
    (
        "exception",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "torch, TORCH_CUDA_ARCH_LIST",
    ),
    (
        "exception",
        "RuntimeError: HIP error: no kernel image is available for execution on the device",
        "torch, PYTORCH_ROCM_ARCH",
    ),
    (
        "exception",
        "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
        "nvidia-smi nvlink -e",
    ),
    (
        "exception",
        "RuntimeError: disagreement between rank0 and rank7: rank0: [1, 2, 3], rank7: [1, 3]",
        "branches that depend on data or rank",
    ),
    (
        "exception",
        "RuntimeError: Step 2 exited with non-zero status 1",
        "training.log in the output folder of that step",
    ),
    (
        "exception",
        "ImportError: /lib/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by a)",
        "LD_LIBRARY_PATH, conda's libstdcxx-ng",
    ),
    (
        "exception",
        "OSError: [Errno 116] Stale file handle: '/data/cache'",
        "caches and outputs (HF_HOME, HF_DATASETS_CACHE)",
    ),
    (
        "port-in-use",
        "HCCL: listen on ip[10.0.0.7] and specific port[16666] fail",
        "HCCL_IF_BASE_PORT, HCCL_NPU_SOCKET_PORT_RANGE",
    ),
    ("wrong-arguments", "can't open file '/data/a.py': [Errno 2] x", "path of the script"),
    (
        "exit",
        "python exited with status code 1",
        "user_logs/std_log*.txt, azureml-logs/70_driver_log.txt",
    ),
    ("exit", "AlgorithmError: Exit Code: 1", "CloudWatch, /aws/sagemaker/TrainingJobs"),
    ("exit", "its pod exited with code 1", "kubectl logs --previous"),
    (
        "exit",
        "DLRover found its node failed, reason Deleted",
        "kubectl describe pod, of that node's pod",
    ),
    ("exception", "NCCL: Error: network AcmeNet not found.", "NCCL_NET"),
    ("exception", "KeyError: 'use_muon'", "optimizer.type"),
    (
        "exception",
        "RuntimeError: No backend type associated with device type cpu",
        "init_process_group(backend=...)",
    ),
    (
        "exception",
        "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_BRIDGE Exception in Lowering thread",
        "HABANA_LOGS",
    ),
    ("signal", "got signal 1", "tmux, screen or setsid"),
    ("signal", "got signal 15", "sacct, kubectl get events, the scheduler's own log"),
]


@pytest.mark.parametrize(
    ("text", "setting"), [(text, setting) for kind, text, setting in SAID if kind == "exception"]
)
def test_an_exception_is_advised_on_what_it_says(text: str, setting: str) -> None:
    assert [advice.setting for advice in cures("exception", text)] == [setting]


@pytest.mark.parametrize(
    ("kind", "text", "setting"), [said for said in SAID if said[0] != "exception"]
)
def test_a_failure_is_advised_on_what_it_says(kind: str, text: str, setting: str) -> None:
    run = run_of([problem(kind, text, value=1.0), problem("exit", "", value=1.0)])
    found = alone(run, "rank-died")
    assert [advice.setting for advice in found.advice] == [setting]


def test_a_launcher_that_somebody_stopped_by_hand_is_not_advised_on() -> None:
    assert alone(run_of([problem("signal", "got signal 2", value=2.0)]), "rank-died").advice == ()


_ASCEND = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 9, in <module>
[rank1]:     loss.backward()
[rank1]: RuntimeError: sync:build/torch_npu.cpp:190 NPU function error: x, error code is 507048
[rank1]: [ERROR] 2026-10-11-15:09:34 (PID:29, Device:1, RankID:1) ERR00100 PTA call acl api failed.
[rank1]: EI0002: [PID: 29] 2026-10-11-15:09:34.713.335 The wait execution of the Notify register \
times out. Reason: The Notify register has not received the Notify record from remote rank: [24].
E1011 15:09:40.011000 14 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: \
1) local_rank: 1 (pid: 29) of binary: /opt/venv/bin/python
"""


def test_a_collective_of_ascend_that_timed_out_is_a_hang(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(_ASCEND, encoding="utf-8")
    found = findings_of(load(tmp_path / "run.log"))[0]
    assert (found.rule, found.ranks) == ("hang", ())
    assert found.advice[0].setting == "HCCL_EXEC_TIMEOUT"
    assert "from remote rank: [24]" in found.evidence[0].text


def test_a_process_that_sigint_ended_was_stopped() -> None:
    found = alone(run_of([problem("exit", "exits with return code = -2", value=-2)]), "rank-died")
    assert found.title.startswith("A process was stopped by SIGINT (Ctrl-C): exits")


def test_a_job_that_was_stopped_by_hand_is_told_so() -> None:
    found = alone(run_of([problem("exception", "KeyboardInterrupt", rank=0)]), "rank-died")
    assert found.title.startswith("Rank 0 was stopped by SIGINT (Ctrl-C)")


_BUS_ERROR = """\
ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared \
memory (shm).
Traceback (most recent call last):
  File "train.py", line 9, in <module>
RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that \
dataloader's workers are out of shared memory.
"""


def test_a_full_dev_shm_is_no_full_host(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(_BUS_ERROR, encoding="utf-8")
    found = findings_of(load(tmp_path / "run.log"))[0]
    assert found.rule == "rank-died"
    assert "most likely a full /dev/shm" in found.title
    assert found.confidence == "high"
    assert [advice.setting for advice in found.advice] == [
        "docker --shm-size, --ipc=host",
        "DataLoader(num_workers=...)",
    ]


@pytest.mark.parametrize("kind", sorted(ends.ENDED))
def test_every_cure_says_why(kind: str) -> None:
    assert all(advice.why for advice in cures(kind, ""))


_OF_HYDRA = "Error executing job with overrides: ['model=tiny']\n"


def test_an_error_that_hydra_tells_without_its_traceback_is_read() -> None:
    said = "Error in call to target 'tiny.Shards':\nTypeError('no such folder')\nfull_key: data\n"
    found = alone(run_of_text(_OF_HYDRA, said), "rank-died")
    assert found.title == "A process ended with an exception: TypeError('no such folder')"
    said = "Error locating target 'tiny.Model', set env var HYDRA_FULL_ERROR=1 to see more.\n"
    found = alone(run_of_text(_OF_HYDRA, said), "rank-died")
    assert found.title.endswith(": Error locating target 'tiny.Model'")
    assert found.advice[0].setting == "HYDRA_FULL_ERROR"


def test_hydras_word_of_an_error_is_the_failure_only_where_nothing_else_is_told() -> None:
    found = alone(run_of_text(_OF_HYDRA), "rank-died")
    assert found.title == "A process exited with an error: Error executing job with overrides"
    assert found.advice[0].setting == "stderr of that process"
    lines = 'Traceback (most recent call last):\n  File "a.py", line 7, in <module>\nKeyError: 1\n'
    assert alone(run_of_text(_OF_HYDRA, lines), "rank-died").title.endswith(": KeyError: 1")
    died = "A worker died or was killed while executing a task by an unexpected system error. "
    lines = f"(raylet) {died}Node ID: 5 Worker IP address: 10.0.0.7 Worker port: 10002\n"
    found = alone(run_of_text(lines, _OF_HYDRA), "rank-died")
    assert found.title.startswith("A process on 10.0.0.7 ended without an exception: A worker died")


def test_what_pytorchs_watchdog_ends_a_process_with_is_a_failure_whose_reason_stood_before() -> (
    None
):
    lines = """Steps:   0%|          | 1/500000 [12:44<14459:40:43, 104.11s/it, loss=0.36, lr=5e-6]
[rank6]:[E624 04:14:29.224 ProcessGroupNCCL.cpp:684] [Rank 6] Some NCCL operations have failed or \
timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on \
corrupted/incomplete data.
[rank6]:[E624 04:14:29.224 ProcessGroupNCCL.cpp:698] [Rank 6] To avoid data inconsistency, we are \
taking the entire process down.
"""
    found = alone(run_of_text(lines), "rank-died")
    assert found.title.startswith("Rank 6 ended with an exception: Some NCCL operations have")
    assert found.advice[0].why.startswith("it names the collective that timed out, or NCCL's error")
    timeout = (
        "[E ProcessGroupNCCL.cpp:475] [Rank 6] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=31, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800693 milliseconds "
        "before timing out.\n"
    )
    assert alone(run_of_text(lines, timeout), "hang").title.startswith("A collective timed out")
