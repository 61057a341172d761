"""The hook runs in training's Python, which may be older than dsprof's own, and has no packages
of dsprof's."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from tests.hook.pythons import python
from tests.test_walls import ROOT, imports, inner, module_name, modules

#: What runs in the process of `dsprof attach`, and what a reader of recordings asks for.
OURS = {
    "dsprof.hook.entering.launch",
    "dsprof.hook.entering.deaths",
    "dsprof.hook.entering.join",
    "dsprof.hook.entering.injection",
}
READ = {"dsprof.recording.read", "dsprof.recording.detail"}
#: What is used where training has it.
THEIRS = {"torch", "deepspeed", "pynvml"}
TRAINERS = {"transformers", "lightning", "pytorch_lightning"}


def inside() -> set[str]:
    """Every module that may be imported in a process of training, packages above it among them."""
    found: set[str] = set()
    roots = {name for name in modules() if name.startswith(("dsprof.hook", "dsprof.integrations"))}
    waiting = {"dsprof"} | roots - OURS
    while waiting:
        name = waiting.pop()
        found.add(name)
        above = name.rpartition(".")[0]
        waiting |= (inner(imports()[name]) | {above or name}) - found - READ
    return found


def test_the_hook_asks_for_nothing_but_what_training_has() -> None:
    of_others = {
        name.partition(".")[0] for module in inside() for name in imports()[module]
    } - sys.stdlib_module_names
    assert of_others - THEIRS - TRAINERS == {"dsprof"}


def test_all_of_the_hook_is_checked_for_what_python_3_9_understands() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["ruff"]["per-file-target-version"]
    checked = {module_name(file) for pattern in patterns for file in ROOT.glob(pattern)}
    assert inside() - checked == set()
    assert set(patterns.values()) == {"py39"}


@pytest.mark.parametrize("version", ["3.9", "3.10"])
def test_the_hook_can_be_imported_by_an_older_python_without_packages(version: str) -> None:
    names = sorted(name for name in inside() if not name.startswith("dsprof.integrations."))
    lines = [f"import sys; sys.path.insert(0, {str(ROOT)!r})", *(f"import {n}" for n in names)]
    command = [python(version), "-B", "-I", "-S", "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
