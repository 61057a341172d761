"""What the job is: framework, versions, ranks, hosts, layout, batch sizes, sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from dsprof.run.job.hosts import by_own_names, hosts_of
from dsprof.run.releases import parse
from dsprof.run.versions import Versions

_FROM_CONFIG: Final = (
    "framework", "world_size", "nodes", "zero_stage", "data_parallel_size",
    "tensor_parallel_size", "pipeline_parallel_size", "expert_parallel_size",
    "sequence_parallel_size", "micro_batch_size", "gradient_accumulation_steps",
    "train_batch_size", "seq_length", "parameters", "dtype",
    "gpu_memory_bytes", "phases_on",
)  # fmt: skip

#: Bars, which any loop may show, and the banner of Hugging Face's Trainer and what PEFT tells,
#: which scripts on accelerate print, too.
_ANYBODYS: Final = (
    *("bar_slow", "bar_fast", "bar_endless", "bar_counting", "bar_steps", "bar_kohya"),
    "bar_rwkv",
    *("banner", "banner_examples", "banner_epochs"),
    *("banner_micro_batch", "banner_batch", "banner_accumulation", "banner_steps", "peft"),
)

#: What DeepSpeed prints wherever it is imported, as by accelerate, whoever trains.
OF_AN_IMPORT: Final = frozenset({"deepspeed.accelerator", "deepspeed.no_accelerator"})

#: Dialect → framework that alone prints it; the one met most often names the job.
_DIALECTS: Final = {
    "gpt_neox": "gpt-neox",
    "deepspeed_chat": "deepspeed-chat",
    "megatron": "megatron",
    "huggingface": "huggingface",
    "trl": "huggingface",
    "openrlhf": "openrlhf",
    "verl": "verl",
    "slime": "slime",
    "skyrl": "skyrl",
    "internlm": "internlm",
    "torchtitan": "torchtitan",
    "olmo": "olmo",
    "fairseq": "fairseq",
    "composer": "composer",
    "torchtune": "torchtune",
    "nanogpt": "nanogpt",
    "nanochat": "nanochat",
    "nanotron": "nanotron",
    "sagemaker": "sagemaker",
    "nemo": "nemo",
    "domino": "domino",
    "arctic_training": "arctic-training",
    "automodel": "automodel",
    "fms": "fms",
    "prime-rl": "prime-rl",
    "instructlab": "instructlab",
    "weathergenerator": "weathergenerator",
    "icefall": "icefall",
    "lerobot": "lerobot",
    "prismatic": "prismatic",
    "lightning": "lightning",
}
#: What others are built on, which print its lines, too.
_UNDER_OTHERS: Final = ("lightning",)
#: Of a dialect of many: what one framework alone prints.
_OWN: Final = {
    "huggingface.bar_torchtune": "torchtune",
    "huggingface.bar_prismatic": "prismatic",
    "loops.torchtune": "torchtune",
    "loops.prime_rl": "prime-rl",
    "loops.prime_rl_orchestrator": "prime-rl",
    "loops.nanogpt": "nanogpt",
    "loops.nanogpt_evaluation": "nanogpt",
    "loops.nanochat": "nanochat",
    "loops.sagemaker": "sagemaker",
    "loops.sagemaker_flushes": "sagemaker",
    "composer.exited": "",  # launchers made after its own say so, too
    "megatron.domino": "domino",
    "megatron.nemo": "nemo",
    "megatron.nemo_first": "nemo",
    "megatron.nemo_bar": "nemo",
}


def meta(
    events: pd.DataFrame,
    config: Mapping[str, Any],
    version: Versions,
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """What is known, under the canonical names; what is not known is absent.

    `versions` holds what is stated or follows from one place only; `version_range` says
    how far DeepSpeed's version is known, and from what. `jobs` are the sources of each job, if
    they are of several: the run is of the first alone; `jobs_differ` says what shows that.
    `counted_steps` is true where no line tells a step number and `step` counts what was printed.
    `recordings` says of each recorded process whether it ended, and the operation it was in when
    last heard of; `clocks` how far each host's clock is ahead of the first one's (`ahead` and
    `error`, seconds), or by how much it was `set` during the run.
    """
    known = {name: config[name] for name in _FROM_CONFIG if name in config}
    known.setdefault("gpu_memory_bytes", _device_memory(events))
    framework = known.get("framework") or _framework(events, config, version)
    sources = list(facts.get("sources") or map(str, events["source"].dropna().unique()))
    versions = _versions(config, version)
    spans = f"{version} ({version.how})" if version.spans else version.how
    if facts.get("recordings") and framework is None:
        versions.pop("deepspeed", None)  # imported by some library, and not what was recorded
        spans = ""
    found = {
        **known,
        "framework": framework,
        "versions": versions,
        "version_range": spans,
        "hosts": hosts_of(by_own_names(events)) or _listed(config),
        "sources": sources,
        "jobs": [list(job) for job in facts.get("jobs", ())],
        "jobs_differ": facts.get("jobs_differ"),
        "recordings": facts.get("recordings"),
        "clocks": facts.get("clocks"),
        "counted_steps": facts.get("counted_steps") or None,
        "link_bytes_per_second": facts.get("link_bytes_per_second"),
    }
    return {name: value for name, value in found.items() if value not in (None, "", [], {})}


def _device_memory(events: pd.DataFrame) -> float | None:
    """Of one GPU, by the largest peak that a line tells in bytes and as a part of all of it."""
    named = events["name"].isin(["max_reserved", "max_reserved_percent"])
    if not (named & (events["name"] == "max_reserved_percent")).any():
        return None
    rows = events.loc[named, ["source", "record", "bytes", "value"]]
    both = rows.groupby(["source", "record"], observed=True)[["bytes", "value"]].max()
    both = both[both["value"] > 0].dropna()
    if both.empty:
        return None
    fullest = both.iloc[int(both["value"].to_numpy(dtype=float).argmax())]
    return float(fullest["bytes"] / fullest["value"] * 100)


def _listed(config: Mapping[str, Any]) -> list[str]:
    """The hosts that a launcher lists, where no line is of one."""
    return sorted({one for one in str(config.get("workers", "")).split(",") if one})


def _framework(events: pd.DataFrame, config: Mapping[str, Any], version: Versions) -> str | None:
    if version.fork:
        return "gpt-neox"
    met: Counter[str] = Counter()
    for pattern, rows in events["pattern"].value_counts().items():
        dialect, _, name = str(pattern).partition(".")
        anybodys = pattern in OF_AN_IMPORT or (dialect == "huggingface" and name in _ANYBODYS)
        if rows and not anybodys:
            met[_OWN.get(str(pattern), dialect)] += rows
    for loop in {"nemo", "domino"} & met.keys():  # their models are Megatron's, and say so
        met[loop] += met.pop("megatron", 0)
    if "instructlab" in met:  # its ranks' losses have the form of DeepSpeed-Chat's
        met["instructlab"] += met.pop("deepspeed_chat", 0)
    own = [dialect for dialect, _ in met.most_common() if dialect in _DIALECTS]
    own.sort(key=_UNDER_OTHERS.__contains__)
    if own:
        return _DIALECTS[own[0]]
    engine = any(dialect.startswith("deepspeed") for dialect in met)
    timers = [str(one) for one in events["timers"].dropna().unique()]
    if timers and all(one.startswith("megatron") for one in timers):
        return "megatron"  # its timers have the form of DeepSpeed's
    launched = "deepspeed" in str(config.get("launch_command", ""))
    return "deepspeed" if engine or launched else None


def _versions(config: Mapping[str, Any], version: Versions) -> dict[str, str]:
    stated = {name: config.get(f"{name}_version") for name in ("deepspeed", "torch", "nccl")}
    if version.exact:
        stated["deepspeed"] = stated["deepspeed"] or version.exact
    return {name: str(text) for name, text in stated.items() if parse(str(text)) > (0, 0, 0)}
