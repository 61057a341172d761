"""Train a small network as a DeepSpeed pipeline of two stages, one CPU rank each.

To start it:

    deepspeed --num_accelerators 2 train_pipeline.py --micro-batches 4 --breakdown
"""

import argparse
import time

import deepspeed
import tiny
import torch
from deepspeed.pipe import PipelineModule
from torch import nn


class Slow(nn.Module):
    """A layer that does nothing, slowly: the stage that holds it is out of balance."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return x


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=tiny.HELP)
    option = parser.add_argument
    option("--local_rank", type=int, help=argparse.SUPPRESS)  # from the launcher
    option("--stages", type=int, default=2)
    option("--micro-batches", type=int, default=4, metavar="N", help="micro-batches a step")
    option("--steps", type=int, default=60, help="optimizer steps")
    option("--depth", type=int, default=5, help="residual blocks")
    option("--slow-last", type=float, metavar="SECONDS", help="the last stage sleeps this long")
    option("--log-level", help="'info' restores the step= lines (DeepSpeed 0.19.3 and later)")
    option("--steps-per-print", type=int, default=10, metavar="N")
    option("--breakdown", action="store_true", help="time (ms) lines; fails on 0.18.3 to 0.19.8")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    tiny.start()
    layers = tiny.layers(args.depth)
    if args.slow_last:
        layers.append(Slow(args.slow_last))
    model = PipelineModule(layers=layers, loss_fn=tiny.cross_entropy, num_stages=args.stages)
    config = tiny.base_config("fp32", args.micro_batches, args.steps_per_print, args.log_level)
    config["wall_clock_breakdown"] = args.breakdown
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        training_data=tiny.dataset("fp32"),
        config=config,
    )
    for _ in range(args.steps):
        engine.train_batch()
    deepspeed.comm.barrier()
    deepspeed.comm.destroy_process_group()


if __name__ == "__main__":
    main()
