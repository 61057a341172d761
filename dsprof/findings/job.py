"""What is known of a job as a whole, whichever of its engines is judged: what trains it, its
settings, what its source shows and does not show.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from dsprof.analysis.layout import ds_config, layout_of, offloads_optimizer, setting
from dsprof.events import Kind
from dsprof.run.job.meta import OF_AN_IMPORT
from dsprof.run.table import among, where

if TYPE_CHECKING:
    from dsprof.run import Run

#: Frameworks that train with PyTorch alone, or with Megatron.
_WITHOUT_DEEPSPEED = frozenset(
    {
        "verl", "torchtitan", "torchtune", "internlm", "slime", "fairseq", "nanogpt", "nanotron",
        "sagemaker", "nemo", "megatron-swift", "nanochat", "automodel", "fms", "prime-rl", "olmo",
        "domino", "weathergenerator", "icefall", "lerobot", "lightning", "prismatic",
        "skyrl",
    }
)  # fmt: skip

#: What only a model in PyTorch's own wrapper makes it warn of.
_OF_TORCH = ("ddp_finds_no_unused", "ddp_strides_differ", "nn_data_parallel")

#: What accelerate calls training without DeepSpeed, or Megatron.
_SHARED_BY_TORCH = frozenset(
    {"NO", "FSDP", *(f"MULTI_{one}" for one in ("GPU", "CPU", "NPU", "XPU", "MLU", "HPU"))}
)


#: Keys of an iteration's line that NVIDIA's own Megatron never had.
_OF_MEGATRON_DEEPSPEED: Final = ("elapsed time per iteration (s)", "samples per second")


@dataclass(frozen=True)
class Job:
    """A run as the sum of its lines: nothing here depends on single steps."""

    run: Run

    @cached_property
    def doubts(self) -> dict[str, str]:
        """Known defects of the source that could not be repaired: name and explanation."""
        repairs = self.run.repairs
        rows = repairs[repairs["kind"] == "doubt"]
        return dict(zip(rows["name"].astype(str), rows["text"].astype(str), strict=True))

    def setting(self, path: str) -> Any:
        """The value of a dotted key in the job's DeepSpeed JSON; None if unknown."""
        return setting(self.run.config, path)

    @cached_property
    def has_config(self) -> bool:
        """Whether the job's whole DeepSpeed JSON is known, so that a missing key means unset."""
        return bool(ds_config(self.run.config))

    @property
    def is_offloaded(self) -> bool:
        """Whether optimizer states are kept outside the GPU."""
        return offloads_optimizer(self.run.config)

    @cached_property
    def may_be_offloaded(self) -> bool:
        """Whether nothing tells where optimizer states are kept. ZeRO 0 has no offloading, and a
        recording without settings of DeepSpeed is of another trainer.
        """
        config = self.run.config
        return not (
            self.has_config
            or self.run.is_recording
            or layout_of(config, self.run.meta).zero_stage == 0
            or config.get("cpu_offload") == "False"  # as the optimizer says at its start
            or config.get("offload_optimizer")
        )

    @property
    def on_cpu(self) -> bool:
        """Whether the source says that there is no accelerator. DeepSpeed builds `shm_comm` only
        for CPUs.
        """
        config = self.run.config
        return config.get("accelerator") == "cpu" or "shm_comm" in str(config.get("op_built"))

    @cached_property
    def calls_are_logged(self) -> bool:
        """Whether DeepSpeed's communication logger is on: it waits for each call, so nothing
        overlaps.
        """
        comm = self.run.told
        printed = (comm["kind"] == Kind.COMM) & comm["pattern"].notna()
        return self.setting("comms_logger.enabled") is True or bool(printed.any())

    @cached_property
    def exposure_is_known(self) -> bool:
        """Whether the source, a recording, has the exposed time of each call."""
        return bool(self.run.comm["exposed_seconds"].notna().any())

    @cached_property
    def calls_unseen(self) -> int:
        """The most collectives that any rank issued, by PyTorch's count, and its recording did not
        see; 0 if nothing counted them.
        """
        counted = self.collectives_counted
        unseen = counted["issued"] - counted["seen"]
        return int(unseen.max()) if len(unseen) else 0

    @cached_property
    def collectives_counted(self) -> pd.DataFrame:
        """Collectives per rank, as `issued` (PyTorch's count) and `seen` (the recording's), for
        ranks that have both.
        """
        counted = ("collectives_issued", "collectives_seen")
        told = where(self.run.told, among(self.run.told["name"], counted))
        if told.empty:
            return pd.DataFrame(columns=["issued", "seen"], dtype="float64")
        counts = {
            name: where(told, among(told["name"], [f"collectives_{name}"]))
            .groupby("rank")["value"]
            .sum()
            for name in ("issued", "seen")
        }
        return pd.DataFrame(counts).dropna()

    @cached_property
    def flavours(self) -> frozenset[str]:
        """The timer flavours that the source prints."""
        return frozenset(str(name) for name in self.run.told["timers"].dropna().unique())

    @cached_property
    def micro_only(self) -> bool:
        """Whether all timers are per micro-batch, so that micro-batches per step were counted from
        the lines.
        """
        flavours = self.run.grammar.timers.items()
        sums = {one.sums for name, one in flavours if name in self.flavours}
        return sums - {"once"} == {"micro"}

    @cached_property
    def engine_lines(self) -> frozenset[str]:
        """The patterns of DeepSpeed's dialects that were found."""
        patterns = map(str, self.run.told["pattern"].dropna().unique())
        return frozenset(one for one in patterns if one.startswith("deepspeed"))

    @cached_property
    def shows_deepspeed(self) -> bool:
        """Whether the source says that DeepSpeed trains; lines of a trainer alone leave it open."""
        config, framework = self.run.config, str(self.run.meta.get("framework"))
        return (
            self._engine_speaks
            or self.has_config
            or layout_of(config, self.run.meta).zero_stage is not None
            or framework.startswith(("deepspeed", "gpt-neox"))
            or "deepspeed" in str(config.get("launch_command"))
            or config.get("distributed_type") == "DEEPSPEED"
            or "deepspeed" in (self.run.meta.get("versions") or {})
        )

    @cached_property
    def is_megatron_alone(self) -> bool:
        """Whether this is Megatron without DeepSpeed's engine, so that its settings have no effect.

        Megatron itself also calls DeepSpeed's memory reports, and prints timers that look like
        DeepSpeed's.
        """
        engine = self.engine_lines - {"deepspeed.timers"}
        return (
            self.run.meta.get("framework") == "megatron"
            and all(one.startswith("deepspeed_memory.") for one in engine)
            and all(name.startswith("megatron") for name in self.flavours)
        )

    @cached_property
    def may_be_megatron_deepspeed(self) -> bool:
        """Whether Megatron's own lines have what only its forks for DeepSpeed print. These train
        without it, too, and have the options of Megatron of 2021.
        """
        told = self.run.told
        lines = told[told["pattern"].eq("megatron.iteration").to_numpy(bool, na_value=False)]
        return bool(lines["raw"].isin(_OF_MEGATRON_DEEPSPEED).any())

    @cached_property
    def is_first_megatron(self) -> bool:
        """Whether it is Megatron before 2.0, or what came from it: a timer's name was of words."""
        return bool((self.run.phases["raw"] == "batch generator").any())

    @property
    def is_nemo(self) -> bool:
        """Megatron's model in a loop that has settings of its own."""
        return self.run.meta.get("framework") == "nemo"

    @property
    def is_by_trainer(self) -> bool:
        """Whether the loop is that of Hugging Face's Trainer, with or without DeepSpeed."""
        trainer = self.run.config.get("trainer") or self.run.meta.get("framework")
        return trainer == "huggingface"

    @cached_property
    def is_torch_alone(self) -> bool:
        """Whether DeepSpeed's engine is not used, so that its settings have no effect: a recording
        of a model without it, or the log of a trainer that does not support it.
        """
        stage = layout_of(self.run.config, self.run.meta).zero_stage
        if stage is not None or self.has_config:
            return False
        if self.run.is_recording:
            return not self.run.config.get("framework")
        if self.run.config.get("distributed_type") == "DEEPSPEED":
            return False
        torchs = any(self.run.config.get(name) for name in _OF_TORCH)
        if torchs or self.run.config.get("distributed_type") in _SHARED_BY_TORCH:
            return not self._engine_speaks
        return self.run.meta.get("framework") in _WITHOUT_DEEPSPEED and not self._engine_speaks

    @property
    def _engine_speaks(self) -> bool:
        return bool(self.engine_lines - OF_AN_IMPORT)
