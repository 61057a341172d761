"""What to change: keys of DeepSpeed's JSON, and only to what they are not yet."""

from __future__ import annotations

import re
from typing import Any, Final

from dsprof.events import ENVIRONMENT, NCCL_SWITCHES
from dsprof.findings.defaults import default_of, has_key
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice

#: In so many parts a micro-batch may be cut.
_PARTS: Final = 16

#: What a recording adds where some rank is known to be late.
WHO_IS_LATE: Final = "names the rank and the phase in which it falls behind"

FRAGMENTS: Final = Advice(
    "PYTORCH_CUDA_ALLOC_CONF", "", "expandable_segments:True", "less fragmentation"
)

#: Optimizers that update a whole group of parameters in one kernel.
_FUSED: Final = ("fusedadam", "fusedlamb", "fusedlion", "deepspeedcpuadam")

#: What NCCL_DEBUG=INFO alone lets NCCL say, beside the variables it obeys.
_NCCL_INFO: Final = (
    "network", "network_devices", "transport", "local_transport", "gpudirect", "nccl_ranks",
)  # fmt: skip

#: What the launcher hands to the shells of other hosts.
_EXPORT: Final = re.compile(r"\bexport (\w{1,60})=([^\s;]{1,200})")


def record(facts: Facts, why: str) -> tuple[Advice, ...]:
    """To record the job, or its next launch; empty for what was recorded already."""
    if facts.run.is_recording:
        return ()
    return (Advice("dsprof attach", "", "join the running job (--pid), or start it recorded", why),)


def change(
    facts: Facts, path: str, to: str, why: str, *, least: bool = False
) -> tuple[Advice, ...]:
    """Advice to set a key of the JSON; empty if it is so already, or the job has none, or its
    DeepSpeed does not know the key.

    With `least` a larger number than `to` is as good.
    """
    if facts.is_torch_alone or not has_key(facts, path):
        return ()
    if _is(set_to(facts, path), to, least=least):
        return ()
    return (Advice(path, shown(facts, path), to, why),)


def more_workers(facts: Facts) -> tuple[Advice, ...]:
    """As many for the loader as Lightning says there could be, where it finds few, and they would
    not compete with training for the CPUs."""
    config = facts.run.config
    many = config.get("loader_workers_advised")
    if not many or facts.on_cpu or config.get("loader_pins_for_nothing"):
        return ()
    to = f"up to {many:,.0f}, as Lightning suggests"
    return (Advice("DataLoader(num_workers=...)", "", to, "its few workers may hold the GPU up"),)


def ask_for_timers(facts: Facts) -> tuple[Advice, ...]:
    """Advice to have DeepSpeed print its timers."""
    return change(facts, "wall_clock_breakdown", if_it_trains(facts, "true"), "prints timers")


def if_it_trains(facts: Facts, to: str) -> str:
    """What to set a key of DeepSpeed's to, on that condition where nothing shows DeepSpeed."""
    return to if facts.shows_deepspeed else f"{to}, if DeepSpeed trains it"


def set_to(facts: Facts, path: str) -> Any:
    """What a key is now, DeepSpeed's default included; None where that is not known."""
    value = _stated(facts, path)
    return default_of(facts, path) if value is None and facts.has_config else value


def shown(facts: Facts, path: str) -> str:
    """What a key is now: its value, `unset (default)`, or "" where the JSON is not known."""
    value = _stated(facts, path)
    if value is not None:
        return _text(value)
    if not facts.has_config:
        return ""
    default = default_of(facts, path)
    return "unset" if default is None else f"unset ({_text(default)})"


def _stated(facts: Facts, path: str) -> Any:
    """What the job's JSON says of a key, or else the engine's own dump of its settings."""
    value = facts.setting(path)
    return facts.run.config.get(path) if value is None else value


def clipping(facts: Facts, why: str) -> tuple[Advice, ...]:
    """Clipping to a norm of 1, unless it is clipped to that or less; 0 is off."""
    try:
        tight = 0 < float(_stated(facts, "gradient_clipping")) <= 1
    except (TypeError, ValueError):
        tight = False
    return () if tight else change(facts, "gradient_clipping", "1.0", why)


def variable(facts: Facts, name: str, to: str, why: str) -> tuple[Advice, ...]:
    """Advice to set a variable of the environment; empty if it is so already."""
    now = environment(facts).get(name, "")
    return () if now.lower() == to.lower() else (Advice(name, now, to, why),)


def nccl_debug(facts: Facts, why: str) -> tuple[Advice, ...]:
    """NCCL's own words on its paths, unless it says them already: no other level has these."""
    told = {name for name in facts.run.config if name in _NCCL_INFO or name.startswith("NCCL_")}
    looked = facts.run.problems["kind"].eq("network-fallback").any()
    return () if told or looked else variable(facts, "NCCL_DEBUG", "INFO", why)


def switched_off(facts: Facts) -> tuple[Advice, ...]:
    """The ways that NCCL was told not to take, as a remedy for something else or a test."""
    now, alone = environment(facts), facts.layout.nodes == 1
    return tuple(
        Advice(name, "1", "0, unless what it cures comes back", f"1 switches off {what}")
        for name, what in NCCL_SWITCHES.items()
        if now.get(name) == "1" and not (alone and name == "NCCL_IB_DISABLE")
    )


def not_yet_debugged(facts: Facts, advice: tuple[Advice, ...]) -> tuple[Advice, ...]:
    """Without the advice to let NCCL say what it says already."""
    said = not nccl_debug(facts, "")
    return tuple(one for one in advice if not (said and one.setting == "NCCL_DEBUG"))


def environment(facts: Facts) -> dict[str, str]:
    """What the launcher's command, its script, a recording and NCCL itself tell of the variables
    that they were given."""
    config = facts.run.config
    exported = dict(_EXPORT.findall(str(config.get("launch_command", ""))))
    given = {
        name.removeprefix(ENVIRONMENT): str(value)
        for name, value in config.items()
        if name.startswith((ENVIRONMENT, "NCCL_"))
    }
    return exported | given


def more_micro_batches(facts: Facts, why: str) -> Advice:
    """Twice the gradient accumulation, whether it is configured or the script counts it."""
    now = facts.layout.micro_batches
    configured = facts.run.config.get("gradient_accumulation_steps")
    return Advice(
        "gradient_accumulation_steps" if configured in (None, now) else "micro-batches of a step",
        str(now or ""),
        str(2 * now) if now else "twice as many",
        why,
    )


def smaller_micro_batch(facts: Facts) -> tuple[Advice, ...]:
    """The next smaller micro-batch that can make up the same batch, unless it is one sample; in
    words, where nothing shows DeepSpeed."""
    key = "train_micro_batch_size_per_gpu"
    told = facts.setting(key) or facts.run.config.get("micro_batch_size")
    if told == 1:
        return ()
    keep = "the gradient_accumulation_steps keep the batch"
    if told is None and not facts.shows_deepspeed:
        return (Advice("micro-batch", "", "smaller", "more of them keep the batch"),)
    if not isinstance(told, int | float) or told < 1:
        return (Advice(key, "", "smaller", f"twice {keep}"),)
    for parts in range(2, _PARTS + 1):
        if told % parts == 0:
            times = "twice" if parts == 2 else f"{parts} times"
            return (Advice(key, str(int(told)), str(int(told) // parts), f"{times} {keep}"),)
    return (Advice(key, f"{told:.0f}", "smaller", f"more of {keep}"),)


def higher_stage(facts: Facts) -> tuple[Advice, ...]:
    """The next ZeRO stage, where there is one and other replicas to share with: DeepSpeed's
    pipeline engine takes none above 1.
    """
    layout, highest = facts.layout, 1 if facts.is_by_pipeline_engine else 3
    stage, of_replica = layout.zero_stage, (layout.tensor_parallel or 1) * (layout.stages or 1)
    if (stage or 0) >= highest or layout.world_size == of_replica:
        return ()
    why = "shards states, gradients, then parameters over the ranks"
    untold = "1" if highest == 1 else "one higher"
    now, to = ("", untold) if stage is None else (str(stage), str(stage + 1))
    to = to if facts.is_by_pipeline_engine else if_it_trains(facts, to)
    return (Advice("zero_optimization.stage", now, to, why),)


def fewer_workers(facts: Facts) -> tuple[Advice, ...]:
    """Fewer workers of data loaders, unless a recording shows that there are none."""
    workers = facts.run.config.get("data_workers")
    if facts.run.is_recording and not workers:
        return ()
    why = "each worker holds its own batches"
    return (Advice("DataLoader(num_workers=...)", str(workers or ""), "fewer", why),)


def offload_less(facts: Facts) -> tuple[Advice, ...]:
    """Less in the host's memory, where an optimizer may lie there."""
    key = "zero_optimization.offload_optimizer"
    device = facts.run.config.get("offload_optimizer") or facts.setting(f"{key}.device")
    unknown = device is None and not (facts.may_be_offloaded and facts.shows_deepspeed)
    if unknown or device in ("none", "nvme"):
        return ()
    why = "frees host memory" + ("" if device else ", if the optimizer's states lie there")
    return (Advice(f"{key}.device", str(device or ""), "none or nvme", why),)


def bf16(facts: Facts, why: str) -> tuple[Advice, ...]:
    """bf16 instead of fp16 or fp32."""
    key = "bf16.enabled"
    if facts.run.config.get("dtype") == "bf16":
        return ()
    if not has_key(facts, key):
        return (Advice("DeepSpeed", "", f"0.6.0 or later, with {key}: true", why),)
    return change(facts, key, "true", why)


def fused_optimizer(facts: Facts) -> tuple[Advice, ...]:
    """One kernel for the whole update, unless the source shows that it is so already."""
    if facts.on_cpu or facts.setting("optimizer.params.fused"):
        return ()
    if "zenflow" in facts.flavours:  # it brings optimizers of its own
        return ()
    why = "DeepSpeed's FusedAdam updates all parameters in one kernel instead of many"
    if facts.setting("optimizer.params.torch_adam") is True:
        return change(facts, "optimizer.params.torch_adam", "false", why)
    own, basic = facts.setting("optimizer.type"), facts.run.config.get("basic_optimizer")
    now = str(basic or own or "")
    known_fused = now.lower() in _FUSED or own in ("Adam", "AdamW")
    if known_fused or (now and "adam" not in now.lower()):
        return ()
    why += ", unless it is offloaded" if facts.may_be_offloaded else ""
    return (
        Advice("optimizer.type", f"the script's own {now}" if now else "", "Adam or AdamW", why),
    )


def _is(value: Any, to: str, *, least: bool) -> bool:
    if value is None:
        return False
    wanted = re.split(r"[ ,]", to, maxsplit=1)[0]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value).lower() == wanted.lower()
    try:
        return value >= float(wanted) if least else value == float(wanted)
    except ValueError:
        return False


def _text(value: Any) -> str:
    """A value as JSON has it; large round numbers as people write them, `5e8`."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, int | float):
        return str(value)
    short = f"{value:.0e}"
    is_round = value >= 1e5 and float(short) == value
    return short.replace("e+0", "e") if is_round else f"{value:.15g}"
