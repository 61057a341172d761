"""What DeepSpeed takes for a key that is not set, version by version."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dsprof.findings.advice import bf16, change
from dsprof.findings.defaults import DEFAULTS, default_of, has_key
from tests.findings.test_advice import facts

_OFFLOAD = "zero_optimization.offload_optimizer"
_PINNED = f"{_OFFLOAD}.pin_memory"


@pytest.mark.parametrize(
    ("version", "default"),
    [("0.19.4", False), ("0.19.5", True), ("0.19.8", True), ("0.9.5+cu118", False), (None, None)],
)
def test_a_default_is_that_of_the_jobs_version(version: str | None, default: bool | None) -> None:
    told = {} if version is None else {"deepspeed_version": version}
    job = facts({"train_batch_size": 8}, **told)
    assert default_of(job, _PINNED) is default
    advised = change(job, _PINNED, "true", "")
    assert [one.now for one in advised] == {
        False: ["unset (false)"],
        True: [],
        None: ["unset"],
    }[default]


@pytest.mark.parametrize(
    ("path", "version", "has"),
    [
        (f"{_OFFLOAD}.ratio", "0.12.2", False),
        (f"{_OFFLOAD}.ratio", "0.12.3", True),
        (f"{_OFFLOAD}.device", "0.12.2", True),
        ("checkpoint.parallel_write.pipeline_stage", "0.7.3", False),
        ("comms_logger.enabled", "0.6.7", False),
        ("comms_logger.enabled", "0.7.0", True),
        ("zero_optimization.stage", "0.3.1", True),
    ],
)
def test_a_key_that_the_jobs_version_does_not_know_is_not_advised(
    path: str, version: str, has: bool
) -> None:
    job = facts({"train_batch_size": 8}, deepspeed_version=version)
    assert has_key(job, path) is has
    assert bool(change(job, path, "7", "")) is has


def test_a_version_without_bf16_is_advised_to_be_a_later_one() -> None:
    old = facts({"train_batch_size": 8}, deepspeed_version="0.5.10")
    assert [(one.setting, one.to) for one in bf16(old, "")] == [
        ("DeepSpeed", "0.6.0 or later, with bf16.enabled: true")
    ]


def defaults_in(source: Path, name: str) -> dict[str, Any]:
    """What the fields of one of DeepSpeed's configurations are if they are not set, by the names
    that its JSON has for them."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    found = next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name)
    values = {}
    for field in found.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            said = field.value
            key = field.target.id
            while isinstance(said, ast.Call):  # Field(pp_int(5e8), alias="...")
                alias = [word.value for word in said.keywords if word.arg == "alias"]
                key = ast.literal_eval(alias[0]) if alias else key
                said = said.args[0] if said.args else None
            if isinstance(said, ast.Constant):
                values[key] = said.value
    return values


def test_the_defaults_are_those_of_the_deepspeed_that_is_installed() -> None:
    spec = find_spec("deepspeed")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("DeepSpeed is not installed")
    zero = Path(spec.submodule_search_locations[0]) / "runtime" / "zero"
    own = defaults_in(zero / "config.py", "DeepSpeedZeroConfig")
    offload = defaults_in(zero / "offload_config.py", "DeepSpeedZeroOffloadOptimizerConfig")
    newest = facts({"train_batch_size": 8}, deepspeed_version="0.19.8")
    checked = 0
    for path in DEFAULTS:
        section, _, key = path.rpartition(".")
        told = {"zero_optimization": own, _OFFLOAD: offload}.get(section, {})
        if told.get(key) is not None:  # of overlap_comm the stage decides
            assert told[key] == default_of(newest, path), path
            checked += 1
    assert checked >= 9
