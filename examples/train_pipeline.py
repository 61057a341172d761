"""Train a small network as a two-stage DeepSpeed pipeline on two CPU ranks.

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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # the deepspeed launcher passes it
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=4, metavar="N", help="micro-batches an optimizer step")
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps")
    parser.add_argument("--depth", type=int, default=5, help="residual blocks")
    parser.add_argument("--slow-last", type=float, metavar="SECONDS", help="sleep in the last stage, each micro-batch")
    parser.add_argument("--log-level", help="'info' brings the step= lines back (DeepSpeed 0.19.3 and later)")
    parser.add_argument("--steps-per-print", type=int, default=10, metavar="N")
    parser.add_argument("--breakdown", action="store_true", help="wall_clock_breakdown (fails on 0.18.3 to 0.19.8)")
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
