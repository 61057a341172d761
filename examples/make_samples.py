"""Run every example job once and store its complete output in ../sample_logs.

    python make_samples.py --env 0.19.8=/opt/ds198 --env 0.16.9=/opt/ds169 [NAME ...]

Each --env names a virtual environment with that version of DeepSpeed in it. The end of a NAME is
the version that it runs on. Paths and host name of this machine are replaced by neutral ones.
"""

import argparse
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SAMPLE_LOGS = HERE.parent / "sample_logs"

TWO_RANKS = "deepspeed --num_accelerators 2 --master_port {port} "
TORCHRUN = "torchrun --standalone --nproc_per_node 2 "
ZERO = "{examples}/train_zero.py --stage "
PIPELINE = TWO_RANKS + "{examples}/train_pipeline.py "


def zero(options: str) -> str:
    return TWO_RANKS + ZERO + options


INFO = " --log-level info"
FP16 = " --dtype fp16 --loss-scale-power 24 --breakdown"
SLOW_RANK = " --breakdown --slow-rank 1 --seconds 0.05"
VERBOSE = " --accumulation 2 --steps 30 --breakdown --comms-logger verbose"

COMMANDS = {
    # one log a ZeRO stage
    "zero0_0.19.8": zero("0 --breakdown"),
    "zero1_accumulation_0.19.8": zero("1 --accumulation 4 --dtype bf16 --breakdown" + INFO),
    "zero2_accumulation_0.19.8": zero("2 --accumulation 4 --breakdown"),
    "zero2_accumulation_0.16.9": zero("2 --accumulation 4 --dtype bf16 --breakdown"),
    "zero3_0.19.8": zero("3 --dtype bf16 --breakdown" + INFO),
    "zero3_offload_0.19.8": zero("3 --dtype bf16 --offload --breakdown" + INFO),
    # what DeepSpeed can be asked to say
    "comms_verbose_0.19.8": zero("1" + VERBOSE + INFO),
    "comms_verbose_0.16.9": zero("1" + VERBOSE),
    "comms_table_0.19.8": zero("2 --comms-logger table"),
    "comms_table_zero3_0.16.9": zero("3 --dtype bf16 --breakdown --comms-logger table"),
    "flops_profiler_0.19.8": zero("1 --breakdown --flops-profiler 20" + INFO),
    "csv_monitor_0.19.8": zero("1 --breakdown --csv-monitor csv_monitor_0.19.8"),
    "csv_monitor_0.16.9": zero("1 --accumulation 2 --breakdown --csv-monitor csv_monitor_0.16.9"),
    "memory_breakdown_0.19.8": zero("2 --steps 20 --breakdown --memory-breakdown" + INFO),
    "quiet_0.19.8": zero("1"),
    # pipelines
    "pipeline_0.16.9": PIPELINE + "--breakdown",
    "pipeline_slow_last_0.16.9": PIPELINE + "--breakdown --slow-last 0.01",
    "pipeline_0.19.8": PIPELINE + "--log-level info",
    "pipeline_breakdown_0.19.8": PIPELINE + "--breakdown",
    # trouble
    "fp16_overflow_0.19.8": zero("2" + FP16 + INFO),
    "fp16_overflow_unfused_0.16.9": zero("0" + FP16),
    "fp16_overflow_quiet_0.19.8": zero("1" + FP16),
    "straggler_0.16.9": zero("1" + SLOW_RANK + " --comms-logger table"),
    "straggler_0.19.8": zero("2" + SLOW_RANK + INFO),
    "slow_data_0.19.8": zero("1 --breakdown --slow-data --seconds 0.03" + INFO),
    "checkpoint_0.16.9": zero("2 --breakdown --checkpoint checkpoints"),
    "checkpoint_0.19.8": zero("2 --breakdown --checkpoint checkpoints" + INFO),
    "killed_rank_0.19.8": zero("2 --breakdown --kill-rank 1" + INFO),
    "killed_rank_zero_0.19.8": zero("2 --breakdown --kill-rank 0 --kill-step 11"),
    "killed_rank_torchrun_0.19.8": TORCHRUN + ZERO + "2 --breakdown --kill-rank 1",
    "torchrun_tee_0.19.8": TORCHRUN + "--tee 3 " + ZERO + "1 --accumulation 2 --breakdown" + INFO,
    "port_in_use_0.19.8": zero("1").replace("{port}", "{busy_port}"),
}


def listen() -> socket.socket:
    """A socket on a port that nobody else has."""
    return socket.create_server(("", 0))


def free_port() -> int:
    with listen() as listener:
        return listener.getsockname()[1]


def run(command: str, environment: Path, folder: Path) -> str:
    """What `command` prints on both streams, in the order it came, run in `folder`."""
    variables = {
        "PATH": f"{environment}/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
    }
    with listen() as busy:
        ports = {"port": free_port(), "busy_port": busy.getsockname()[1]}
        words = command.format(examples=HERE, **ports).split()
        done = subprocess.run(
            words,
            cwd=folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,  # a job that fails is a sample too
        )
    return done.stdout.decode(errors="surrogateescape")


def neutral(text: str, environment: Path, folder: Path) -> str:
    """`text` without the paths and the host name of this machine."""
    interpreter = (environment / "bin/python").resolve().parent.parent
    names = {
        environment: "/opt/venv",
        interpreter: "/opt/python",
        folder: "/home/user/run",
        HERE: "/home/user/dsprof-examples",
    }
    for path, name in names.items():
        text = text.replace(str(path), name)
    return re.sub(rf"(?<![\w./-]){re.escape(socket.gethostname())}(?![\w/-])", "node-0", text)


def make(name: str, environment: Path) -> None:
    """Write sample_logs/NAME.log, and the folder NAME if the job wrote one."""
    with tempfile.TemporaryDirectory() as folder:
        text = neutral(run(COMMANDS[name], environment, Path(folder)), environment, Path(folder))
        (SAMPLE_LOGS / f"{name}.log").write_bytes(text.encode(errors="surrogateescape"))
        if (Path(folder) / name).is_dir():
            shutil.copytree(Path(folder) / name, SAMPLE_LOGS / name, dirs_exist_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", action="append", required=True, metavar="VERSION=FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these samples only")
    args = parser.parse_args()
    environments = dict(env.split("=", 1) for env in args.env)
    for name in args.names or COMMANDS:
        version = name.rsplit("_", 1)[1]
        if version in environments:
            print(name, flush=True)
            make(name, Path(environments[version]).absolute())


if __name__ == "__main__":
    main()
