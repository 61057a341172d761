"""What the job was told, as far as its source says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import prod
from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.events import COUNTED, Kind
from dsprof.run.table import among, of_kind, where

#: Canonical name → where the job's DeepSpeed JSON says it.
IN_JSON: Final = {
    "zero_stage": "zero_optimization.stage",
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "train_batch_size": "train_batch_size",
    "steps_per_print": "steps_per_print",
    "offload_optimizer": "zero_optimization.offload_optimizer.device",
    "offload_param": "zero_optimization.offload_param.device",
}


def config(events: pd.DataFrame, launch: int | None = None) -> dict[str, Any]:
    """Canonical name → value; `ds_config` is the job's own JSON. Unknown names are absent.

    What is said last holds: a restart may change it. Of a launch the engine's word counts more than
    the arguments of its script. The first engine that ends a step speaks for the run; where the
    source does not say which of several engines a line is of, and they differ, it is unknown.

    Args:
        events: tidy events.
        launch: the last one that counts; all of them if None.
    """
    rows = of_kind(events, Kind.CONFIG)
    rows = where(rows, ~among(rows["name"], COUNTED))
    if launch is not None:
        rows = rows[~(rows["segment"] > launch).fillna(value=False).astype(bool)]
    rows = _of_the_trained(events, rows)
    if (events["engine"] > 0).any():
        rows = _undisputed(rows)
    last = _by_weight(events, rows).drop_duplicates("name", keep="last")
    known: dict[str, Any] = {}
    numbers = last["value"].fillna(last["bytes"])
    for name, value, text in zip(last["name"], numbers, last["text"], strict=True):
        known[str(name)] = _possible(str(name), _whole(value) if pd.notna(value) else text)
    known = {name: value for name, value in known.items() if pd.notna(value)}
    if "ds_config" in known:
        own = known["ds_config"] = _json(str(known["ds_config"]))
        for name in last.loc[among(last["pattern"], _ARGUMENTS), "name"]:
            if setting(own, IN_JSON.get(str(name), "")) is not None:
                known.pop(str(name), None)
    patterns = {str(pattern) for pattern in events["pattern"].dropna().unique()}
    if "deepspeed.config" in patterns and not any("pipeline" in pattern for pattern in patterns):
        known.setdefault("pipeline_parallel_size", 1)  # a pipeline would have said so by then
    stages = _stages(rows)
    if stages:
        known.setdefault("pipeline_parallel_size", stages)
    return _derived(known)


#: What each engine of a job may be told differently.
_OF_AN_ENGINE: Final = (*IN_JSON, "ds_config", "dtype", "wall_clock_breakdown")


def _of_the_trained(events: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Settings of the process, told with those of its first engine, and of the first that ends a
    step: before it a trainer may make one that only evaluates, such as a reference model's.
    """
    first = rows["engine"].min()
    others = rows["engine"] != first
    trained = _first_that_steps(events) if others.any() else first
    own = rows["engine"] == trained
    if trained == first or not own.any():
        return where(rows, ~others)
    theirs = rows["name"].isin([*_OF_AN_ENGINE, *rows.loc[own, "name"].unique()])
    return where(rows, own | ~(others | theirs))


def _first_that_steps(events: pd.DataFrame) -> int:
    metrics = of_kind(events, Kind.METRIC)
    engines = metrics.loc[metrics["step"].notna(), "engine"]
    return int(engines.min()) if len(engines) else -1


#: What a script was told on its command line.
_ARGUMENTS: Final = ("arguments.namespace", "arguments.trainer", "launcher.command")


def _by_weight(events: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Settings, of each launch those first that count least: arguments that are printed behind a
    step, then other ones, then what the engine says. Behind a step they are those of an evaluation,
    or of the next launch.
    """
    are_arguments = among(rows["pattern"], _ARGUMENTS)
    if not are_arguments.any():
        return rows
    place = ["segment", "source"]
    stepped = events.loc[events["step"].notna() & events["line"].notna(), [*place, "line"]]
    first = stepped.groupby(place, observed=True)["line"].min().rename("first").reset_index()
    segment = rows["segment"].astype("float64")
    begun = rows[place].merge(first, how="left", on=place)["first"].to_numpy(float, na_value=np.nan)
    late = are_arguments & (rows["line"].to_numpy(float, na_value=np.nan) > begun)
    order = pd.DataFrame(
        {
            "segment": segment.mask(late, np.minimum(segment + 1, segment.max())).to_numpy(),
            "weight": np.where(late, 0, np.where(are_arguments, 1, 2)),
        }
    )
    return rows.iloc[order.sort_values(["segment", "weight"], kind="stable").index]


def _stages(rows: pd.DataFrame) -> int | None:
    """How many stages a pipeline has, where the parameters of those told are all of the model's;
    None where a line of one may be missing."""
    if not among(rows["name"], ["stage_parameters"]).any():
        return None
    told = rows[rows["rank"].notna()].drop_duplicates(["name", "rank"], keep="last")
    each, whole = (
        told.loc[told["name"] == name, "value"] for name in ("stage_parameters", "total_parameters")
    )
    if each.empty or each.sum() != whole.max():
        return None
    return int(told.loc[told["name"] == "stage", "value"].nunique())


def told_again(events: pd.DataFrame) -> bool:
    """Whether several launches tell settings."""
    launches = events["segment"][among(events["kind"], [Kind.CONFIG])]
    return len(launches) > 0 and bool(launches.min() < launches.max())


def _undisputed(rows: pd.DataFrame) -> pd.DataFrame:
    """Settings without those of an engine for which the last launch says several values."""
    last = rows[(rows["segment"] == rows["segment"].max()) & rows["name"].isin(_OF_AN_ENGINE)]
    said = last["value"].astype("object").where(last["value"].notna(), last["text"])
    disputed = said.astype("str").groupby(last["name"].astype("str")).nunique()
    return rows[~rows["name"].isin(disputed.index[disputed > 1])]


#: What counts something: words, parts and negative numbers of it say nothing.
_COUNTS: Final = frozenset(
    {
        "world_size", "nodes", "zero_stage", "data_parallel_size", "tensor_parallel_size",
        "model_parallel_size", "pipeline_parallel_size", "virtual_pipeline_parallel_size",
        "expert_parallel_size", "sequence_parallel_size", "context_parallel_size",
        "micro_batch_size", "gradient_accumulation_steps", "train_batch_size", "seq_length",
        "steps_per_print", "parameters", "parameters_per_gpu",
    }
)  # fmt: skip
_LARGEST: Final = 1e15  #: of any setting; far below where floats lose count


_DIGITS: Final = 20  #: as many are already too many


def _possible(name: str, value: Any) -> Any:
    """The value of a setting; None if it can be none: not finite, absurdly large, no count."""
    if isinstance(value, int | float) and not abs(value) <= _LARGEST:
        return None
    if name not in _COUNTS:
        return value
    counts = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return value if counts and value == int(value) else None


def _whole(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value


#: A string, or a word that JSON spells otherwise, in a dict as Python prints it. One that nothing
#: closes reaches to the end, or each quote in it would be looked behind again.
_PYTHONS: Final = re.compile(
    r"""'(?P<text>(?:[^'\\]|\\.)*+)(?:'|\\?\Z)|"(?:[^"\\]|\\.)*+(?:"|\\?\Z)"""
    r"""|\b(?P<word>True|False|None|inf)\b""",
    re.DOTALL,
)
_JSONS: Final = {"True": "true", "False": "false", "None": "null", "inf": "Infinity"}


def _as_json(text: str) -> str:
    """A dict that Python printed; JSON is left as it is."""

    def spelled(found: re.Match[str]) -> str:
        if found["text"] is not None:
            return json.dumps(found["text"].replace("\\'", "'"))
        return _JSONS.get(found["word"], found[0])

    return _PYTHONS.sub(spelled, text) if re.match(r"\{\s*'", text) else text


def _json(text: str) -> Mapping[str, Any]:
    """Its numbers that no setting can have are None, as if the job had not said them; an infinite
    one is the word "inf", as accelerate sets steps_per_print."""
    try:
        found = json.loads(
            _as_json(text),
            parse_int=lambda digits: _possible("", int(digits[:_DIGITS])),
            parse_float=lambda digits: _possible("", float(digits)),
            parse_constant=lambda word: "inf" if word == "Infinity" else None,
        )
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def setting(ds_config: Mapping[str, Any], path: str) -> Any:
    """The value of a dotted key; None if it is not there or left to be found ("auto")."""
    value: Any = ds_config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return None if value == "auto" else value


#: Stages that leave each rank all parameters, on its device: they heed no `offload_param`.
_WHOLE_PARAMETERS: Final = (0, 1, 2)


#: Canonical name → where DeepSpeed's JSON says it in the way of 2020, which is still understood.
_OLDER: Final = {
    "offload_optimizer": "zero_optimization.cpu_offload",
    "offload_param": "zero_optimization.cpu_offload_params",
}


def _offloaded(known: dict[str, Any], own: Any) -> None:
    """Add what an older key, or the optimizer itself as it is made, says of offloading."""
    for name, path in _OLDER.items():
        if setting(own, path) is True:
            known.setdefault(name, "cpu")
    if known.get("cpu_offload") == "True":  # as ZeRO 1 and 2 say, which know no other device
        known.setdefault("offload_optimizer", "cpu")


def _derived(known: dict[str, Any]) -> dict[str, Any]:
    """Add what follows from the rest without a guess."""
    if known.get("deepspeed") == "False":  # Megatron keeps DeepSpeed's settings, unused
        known.pop("zero_stage", None)
    own = known.get("ds_config", {})
    for name, path in IN_JSON.items():
        value = _possible(name, setting(own, path))
        if name not in known and isinstance(value, int | float | str):
            known[name] = value
    if "zero_stage" not in known and own and setting(own, "zero_optimization") is None:
        known["zero_stage"] = 0
    _offloaded(known, own)
    if known.get("zero_stage") in _WHOLE_PARAMETERS:
        known.pop("offload_param", None)
    for dtype in ("fp16", "bf16"):
        if setting(own, f"{dtype}.enabled") is True:
            known.setdefault("dtype", dtype)
    for name, size in _topology(str(known.get("topology", ""))).items():
        known.setdefault(name, size)
    return _consistent(_sizes(_tensor_parallel(known)))


#: Axis of DeepSpeed's process topology → the layout it is.
_AXES: Final = {
    "pipe": "pipeline_parallel_size",
    "data": "data_parallel_size",
    "model": "tensor_parallel_size",
}


def _topology(text: str) -> dict[str, int]:
    """Sizes of the axes of `{ProcessCoord(pipe=0, data=0): 0, ...}`; an axis not there is 1."""
    last: dict[str, int] = {}
    for axis, place in re.findall(r"\b(pipe|data|model)=(\d{1,9})\b", text):
        last[axis] = max(last.get(axis, 0), int(place))
    return {name: last.get(axis, 0) + 1 for axis, name in _AXES.items()} if last else {}


def _tensor_parallel(known: dict[str, Any]) -> dict[str, Any]:
    """What model parallelism leaves for tensors: DeepSpeed counts a pipeline's stages in."""
    model, stages = (
        _count(known.get(name)) for name in ("model_parallel_size", "pipeline_parallel_size")
    )
    if model == 1:
        known.setdefault("tensor_parallel_size", 1)
    elif model and stages and model % stages == 0:
        known.setdefault("tensor_parallel_size", model // stages)
    return known


def _consistent(known: dict[str, Any]) -> dict[str, Any]:
    """Without a layout of more ranks than there are: which of its sizes is wrong is unknown."""
    needed = prod(_count(known.get(name)) or 1 for name in _AXES.values())
    if 0 < _count(known.get("world_size")) < needed:
        return {name: value for name, value in known.items() if name not in _AXES.values()}
    return known


def _sizes(known: dict[str, Any]) -> dict[str, Any]:
    """Sizes that follow from others: ranks from the layout or back, one of a batch from two."""
    tensor, stages, sequence, world, data = (
        _count(known.get(name))
        for name in (
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "sequence_parallel_size",
            "world_size",
            "data_parallel_size",
        )
    )
    model = tensor * stages * max(sequence, 1)
    if model and data and not world:
        known["world_size"] = data * model
    if model and world and not data and world % model == 0:
        data = known["data_parallel_size"] = world // model
    return _batches(known, data)


def _batches(known: dict[str, Any], data: int) -> dict[str, Any]:
    batch, micro, accumulation = (
        _count(known.get(name))
        for name in ("train_batch_size", "micro_batch_size", "gradient_accumulation_steps")
    )
    if data and micro and accumulation and not batch:
        known["train_batch_size"] = micro * accumulation * data
    if data and micro and batch and not accumulation and batch % (micro * data) == 0:
        known["gradient_accumulation_steps"] = batch // (micro * data)
    if micro and accumulation and batch and not data and batch % (micro * accumulation) == 0:
        known["data_parallel_size"] = batch // (micro * accumulation)
    return known


def _count(value: Any) -> int:
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return int(value) if whole else 0
