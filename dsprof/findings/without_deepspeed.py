"""Advice by other names than DeepSpeed's keys: options of Megatron, settings of NeMo, arguments of
Hugging Face's Trainer, or plain words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from dsprof.findings.finding import Advice, Finding


class Option(NamedTuple):
    """What Megatron calls a setting; `to` and `why` only where DeepSpeed's words do not fit."""

    name: str
    to: str = ""
    why: str = ""


_OPTIONS: Final = {
    "bf16.enabled": Option("--bf16", "on, without --fp16"),
    "fp16.initial_scale_power": Option("--initial-loss-scale", "lower"),
    "fp16.loss_scale_window": Option("--loss-scale-window", "longer"),
    "gradient_clipping": Option("--clip-grad"),
    "train_micro_batch_size_per_gpu": Option(
        "--micro-batch-size", why="at the same --global-batch-size there are more micro-batches"
    ),
    "gradient_accumulation_steps": Option("--global-batch-size", "twice as large"),
    "number of pipeline stages": Option(
        "--pipeline-model-parallel-size",
        why="each stage less saves a micro-batch time of bubble; "
        "--num-layers-per-virtual-pipeline-stage makes the bubble smaller with the same number of "
        "stages",
    ),
    "PipelineModule(partition_method=...)": Option("layers of each pipeline stage"),
    "zero_optimization.stage": Option(
        "--use-distributed-optimizer",
        "on",
        "shards the optimizer's states over the data-parallel ranks",
    ),
    "zero_optimization.overlap_comm": Option("--overlap-grad-reduce", "on"),
    "steps_per_print": Option("--log-interval"),
    "eval_steps": Option("--eval-interval"),
    "evaluation data set": Option("--eval-iters", "fewer"),
    "DataLoader(num_workers=...)": Option("--num-workers"),
}

#: In a pipeline it is the number of micro-batches that counts, however large they are.
_IN_A_PIPELINE: Final = {
    "gradient_accumulation_steps": Option(
        "micro-batches of a step (--micro-batch-size, --global-batch-size)",
        why="the bubble is (p-1)/(m+p-1) of the time; a smaller micro-batch makes more of them at "
        "the same batch",
    ),
}

#: Of Megatron before 2.0, and of what came from it: one micro-batch a step, whose size is that of a
#: rank's batch, and gradients that are always reduced behind the backward.
_FIRST_OPTIONS: Final = {
    "bf16.enabled": Option("bf16", "on, without --fp16"),
    "fp16.initial_scale_power": Option("initial loss scale", "lower"),
    "fp16.loss_scale_window": Option("growth interval of the loss scale", "longer"),
    "gradient_clipping": Option("--clip-grad"),
    "train_micro_batch_size_per_gpu": Option("--batch-size", why="that of a rank"),
    "gradient_accumulation_steps": Option("--batch-size", "twice as large"),
    "steps_per_print": Option("--log-interval"),
    "eval_steps": Option("--eval-interval"),
    "evaluation data set": Option("--eval-iters", "fewer"),
    "DataLoader(num_workers=...)": Option("--num-workers"),
}

#: Of a trainer whose settings are not known by name.
_IN_WORDS: Final = {
    "bf16.enabled": Option("bf16", "on, without fp16"),
    "fp16.initial_scale_power": Option("initial loss scale", "lower"),
    "fp16.loss_scale_window": Option("growth interval of the loss scale", "longer"),
    "gradient_clipping": Option("gradient clipping"),
    "train_micro_batch_size_per_gpu": Option("micro-batch", why="more of them keep the batch"),
    "gradient_accumulation_steps": Option(
        "micro-batches of a step",
        why="accumulated without reducing between them (DDP: no_sync() for all but the last), they "
        "share one reduction and one update (mind the larger batch)",
    ),
}

#: NeMo's names of Megatron's settings, and those of the Trainer of Lightning around it.
_NEMO: Final = {
    "bf16.enabled": Option("precision", "bf16-mixed"),
    "fp16.initial_scale_power": Option("initial loss scale", "lower"),
    "fp16.loss_scale_window": Option("growth interval of the loss scale", "longer"),
    "gradient_clipping": Option("clip_grad (NeMo 1: gradient_clip_val)"),
    "train_micro_batch_size_per_gpu": Option(
        "micro_batch_size", why="at the same global_batch_size there are more micro-batches"
    ),
    "gradient_accumulation_steps": Option("global_batch_size", "twice as large"),
    "number of pipeline stages": Option("pipeline_model_parallel_size"),
    "PipelineModule(partition_method=...)": Option("layers of each pipeline stage"),
    "zero_optimization.stage": Option(
        "use_distributed_optimizer (NeMo 1: distributed_fused_adam)",
        "on",
        "shards the optimizer's states over the data-parallel ranks",
    ),
    "zero_optimization.overlap_comm": Option("overlap_grad_reduce", "on"),
    "steps_per_print": Option("log_every_n_steps"),
    "eval_steps": Option("val_check_interval"),
    "evaluation data set": Option("limit_val_batches", "fewer"),
}

#: Arguments of Hugging Face's Trainer. With DeepSpeed they fill what its JSON leaves to "auto", and
#: must agree with the rest; what the JSON alone sets keeps its name.
_TRAINER: Final = {
    "bf16.enabled": Option("bf16", "true, without fp16"),
    "gradient_clipping": Option("max_grad_norm"),
    "train_micro_batch_size_per_gpu": Option("per_device_train_batch_size"),
    "save interval": Option("save_steps"),
    "DataLoader(num_workers=...)": Option("dataloader_num_workers"),
    "DataLoader(persistent_workers=...)": Option("dataloader_persistent_workers"),
    "DataLoader(pin_memory=...)": Option("dataloader_pin_memory"),
    "DataLoader(prefetch_factor=...)": Option("dataloader_prefetch_factor"),
}

#: Without DeepSpeed it has these, too, by the names that DeepSpeed's advice has.
_TRAINER_ALONE: Final = _TRAINER | {
    "fp16.initial_scale_power": Option("initial loss scale", "lower"),
    "fp16.loss_scale_window": Option("growth interval of the loss scale", "longer"),
    "gradient_accumulation_steps": Option("gradient_accumulation_steps"),
    "per_device_eval_batch_size": Option("per_device_eval_batch_size"),
}

#: Settings of DeepSpeed, and of Hugging Face's Trainer, that have no like elsewhere.
_NOWHERE_ELSE: Final = (
    "zero_optimization.", "checkpoint.", "comms_logger.", "optimizer.", "steps_per_print",
    "wall_clock_breakdown", "log_level", "per_device_eval_batch_size",
)  # fmt: skip

#: The one setting of DeepSpeed that is named in spite of Megatron's own lines.
_IF_DEEPSPEED_TRAINS: Final = {"wall_clock_breakdown": Option("wall_clock_breakdown")}


def for_megatron(found: Finding, *, first: bool = False, forked: bool = False) -> Finding:
    """The same finding with Megatron's own options; no gain where nothing is left to change.

    Args:
        found: the finding.
        first: with those that it had before 2.0.
        forked: whether DeepSpeed may train it after all, and print its timers.
    """
    if first:
        return _by(_FIRST_OPTIONS, found)
    in_a_pipeline = _IN_A_PIPELINE if found.rule.startswith("pipeline-") else {}
    of_deepspeed = _IF_DEEPSPEED_TRAINS if forked else {}
    return _by(_OPTIONS | in_a_pipeline | of_deepspeed, found)


def for_nemo(found: Finding) -> Finding:
    """The same finding with NeMo's own settings, which are no options of a command line."""
    return _by(_NEMO, found)


def for_trainer(found: Finding, *, alone: bool) -> Finding:
    """The same finding with the arguments by which users of Hugging Face's Trainer set it; `alone`:
    without keys of a DeepSpeed that does not train the model."""
    if alone:
        return _by(_TRAINER_ALONE, found)
    return replace(found, advice=tuple(map(_as_argument, found.advice)))


def _as_argument(advice: Advice) -> Advice:
    """What DeepSpeed's JSON lacks may be set by an argument all the same; but without "auto" there
    no argument makes DeepSpeed clip."""
    if advice.setting not in _TRAINER or not advice.now.startswith("unset"):
        return _named(advice, _TRAINER)
    if advice.setting == "gradient_clipping":
        return advice
    return _named(advice._replace(now=""), _TRAINER)


def for_others(found: Finding) -> Finding:
    """The same finding without keys of a DeepSpeed that the trainer does not know."""
    return _by(_IN_WORDS, found)


def for_unknown(found: Finding) -> Finding:
    """The same finding with words for keys that only DeepSpeed has, of a job of which nothing shows
    what trains it; what others call likewise keeps its name."""
    words = {key: option for key, option in _IN_WORDS.items() if "." in key}
    return replace(found, advice=tuple(_named(one, words) for one in found.advice))


def _by(options: Mapping[str, Option], found: Finding) -> Finding:
    advice = tuple(filter(None, (_own(one, options) for one in found.advice)))
    return replace(found, advice=advice, gain=found.gain if advice else None)


def _own(advice: Advice, options: Mapping[str, Option]) -> Advice | None:
    lost = advice.setting not in options and advice.setting.startswith(_NOWHERE_ELSE)
    return None if lost else _named(advice, options)


def _named(advice: Advice, options: Mapping[str, Option]) -> Advice:
    option = options.get(advice.setting)
    if option is None:
        return advice
    return Advice(option.name, advice.now, option.to or advice.to, option.why or advice.why)
