"""Train a small network with DeepSpeed ZeRO on CPU ranks; every option shows in the log.

Two ways to start it on two ranks:

    deepspeed --num_accelerators 2 train_zero.py --stage 2 --accumulation 4 --breakdown
    torchrun --standalone --nproc_per_node 2 train_zero.py --stage 3 --slow-rank 1
"""

import argparse
import os
import signal
import time
from typing import Any

import deepspeed
import tiny
from deepspeed import comm as dist
from deepspeed.utils import RepeatingLoader
from torch import nn


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=tiny.HELP)
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # from the launcher

    option = parser.add_argument_group("the job").add_argument
    option("--stage", type=int, choices=range(4), default=1, help="ZeRO stage")
    option("--steps", type=int, default=40, help="optimizer steps")
    option("--accumulation", type=int, default=1, metavar="N", help="micro-batches a step")
    option("--dtype", choices=tiny.DTYPES, default="fp32")
    option("--offload", action="store_true", help="optimizer on the host; stage 3: parameters, too")
    option("--depth", type=int, default=3, help="residual blocks")
    option("--checkpoint", metavar="DIR", help="save to DIR halfway")

    option = parser.add_argument_group("what DeepSpeed says").add_argument
    option("--log-level", help="'info' restores the step= lines (DeepSpeed 0.19.3 and later)")
    option("--steps-per-print", type=int, default=10, metavar="N")
    option("--breakdown", action="store_true", help="wall_clock_breakdown: time (ms) lines")
    option("--memory-breakdown", action="store_true", help="memory around each phase")
    option("--comms-logger", choices=["table", "verbose"], help="verbose: also each operation")
    option("--flops-profiler", type=int, metavar="STEP", help="profile this step")
    option("--csv-monitor", metavar="DIR", help="metrics as CSV files under DIR")

    option = parser.add_argument_group("trouble").add_argument
    option("--slow-rank", type=int, metavar="R", help="this rank sleeps in each micro-batch")
    option("--slow-data", action="store_true", help="every rank sleeps before each micro-batch")
    option("--seconds", type=float, default=0.05, help="how long the two above sleep")
    option("--loss-scale-power", type=int, default=16, metavar="P", help="first fp16 scale: 2**P")
    option("--kill-rank", type=int, metavar="R", help="this rank kills itself ...")
    option("--kill-step", type=int, default=20, metavar="STEP", help="... in this step")
    return parser.parse_args()


def deepspeed_config(args: argparse.Namespace) -> dict[str, Any]:
    config = tiny.base_config(args.dtype, args.accumulation, args.steps_per_print, args.log_level)
    config["zero_optimization"] = {"stage": args.stage}
    config["wall_clock_breakdown"] = args.breakdown
    config["memory_breakdown"] = args.memory_breakdown
    if args.offload:
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    if args.offload and args.stage == 3:
        config["zero_optimization"]["offload_param"] = {"device": "cpu"}
    if args.dtype == "fp16":
        config["fp16"]["initial_scale_power"] = args.loss_scale_power
    if args.comms_logger:
        verbose = args.comms_logger == "verbose"
        config["comms_logger"] = {"enabled": True, "verbose": verbose, "prof_all": True}
    if args.flops_profiler:
        config["flops_profiler"] = {"enabled": True, "profile_step": args.flops_profiler}
    if args.csv_monitor:
        csv = {"enabled": True, "output_path": args.csv_monitor, "job_name": "tiny"}
        config["csv_monitor"] = csv
    return config


def cause_trouble(args: argparse.Namespace, rank: int, step: int) -> None:
    if args.slow_data or rank == args.slow_rank:
        time.sleep(args.seconds)
    if rank == args.kill_rank and step == args.kill_step:
        os.kill(os.getpid(), signal.SIGKILL)


def train(args: argparse.Namespace) -> None:
    model = nn.Sequential(*tiny.layers(args.depth))
    engine, _, loader, _ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        training_data=tiny.dataset(args.dtype),
        config=deepspeed_config(args),
    )
    batches = iter(RepeatingLoader(loader))
    for step in range(1, args.steps + 1):
        for _ in range(args.accumulation):
            vectors, labels = next(batches)
            cause_trouble(args, dist.get_rank(), step)
            loss = tiny.cross_entropy(engine(vectors), labels)
            engine.backward(loss)
            engine.step()
        if dist.get_rank() == 0 and step % args.steps_per_print == 0:
            print(f"step {step}/{args.steps}  loss {loss.item():.4f}", flush=True)
        if args.checkpoint and step == args.steps // 2:
            engine.save_checkpoint(args.checkpoint)


def main() -> None:
    args = arguments()
    tiny.start()
    train(args)
    if args.comms_logger:
        dist.log_summary(show_straggler=args.slow_rank is not None)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
