"""The shape of the code: layers that only look down, no cycles, two walls."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: Lowest first. A module imports from its own package and from lower layers only.
LAYERS = (
    ("errors", "units", "quotes", "events", "schema", "colours", "imports"),
    ("recording", "grammar", "output", "heap"),
    ("gpu", "logs"),
    ("hook", "run"),
    ("analysis", "integrations"),
    ("findings",),
    ("charts", "text"),
    ("page", "compare", "export", "doctor"),
    ("live", "arguments"),
    ("cli",),
    ("__main__",),
)

#: The same within large packages, of what they are made of. What is not named here is lower than
#: all that is.
INSIDE = {
    "logs": (
        ("columns", "sources"),
        ("placing", "prefixes", "samples"),
        ("scanning",),
        ("joining",),
    ),
    "hook": (
        ("calls", "looking", "process"),
        ("header", "last_words", "on_gpu"),
        ("entering", "recorder"),
        ("models",),
        ("attach",),
    ),
    "findings": (
        ("resources", "seen"),
        ("failures",),
        ("beside", "ranks"),
        ("numerics", "over_time"),
        ("unknown",),
        ("pipeline",),
        ("communication",),
        ("host",),
        ("same_cause", "trust"),
        ("rules",),
        ("gate",),
    ),
}

#: What looks up: `Run.findings`, and what they go by, are views that are made two layers higher.
UPWARD = {("dsprof.run.run", "dsprof.findings"), ("dsprof.run.run", "dsprof.findings.facts")}

#: What training must never load, and what reading text has no need of.
HEAVY = {"pandas", "plotly", "textual", "rich", "jinja2", "scipy"}


def layer(module: str) -> int:
    name = module.split(".")[1]
    return next(number for number, names in enumerate(LAYERS) if name in names)


def level(module: str) -> int:
    """Of a module of a large package, within it."""
    _, package, name, *_ = module.split(".")
    return next((at for at, names in enumerate(INSIDE[package]) if name in names), -1)


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_name(f): f for f in sorted((ROOT / "dsprof").rglob("*.py"))}


def imported(tree: ast.AST, inside: str) -> Iterator[str]:
    """Every module that is imported to run; imports for type checkers alone do not count."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{inside} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules() else str(node.module) for name in names)
        else:
            yield from imported(node, inside)


@cache
def imports() -> dict[str, set[str]]:
    return {
        name: set(imported(ast.parse(file.read_text(encoding="utf-8")), name))
        for name, file in modules().items()
    }


def inner(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith("dsprof.")}


def reached(module: str) -> set[str]:
    """Everything that a module imports, directly or not, packages of others among it."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        for name in imports().get(waiting.pop(), set()) - seen:
            seen.add(name)
            waiting.append(name)
    return seen


PARTS = [name for name in modules() if name != "dsprof"]
OF_LARGE = [name for name in PARTS if name.count(".") > 1 and name.split(".")[1] in INSIDE]


def test_every_module_has_its_layer() -> None:
    known = {name for names in LAYERS for name in names}
    assert {name.split(".")[1] for name in PARTS} - known == set()


@pytest.mark.parametrize("module", PARTS)
def test_a_module_imports_only_lower_layers(module: str) -> None:
    above = {
        name
        for name in inner(imports()[module])
        if name.split(".")[1] != module.split(".")[1] and layer(name) >= layer(module)
    }
    assert {name for name in above if (module, name) not in UPWARD} == set()


def test_every_package_of_a_large_one_has_its_level() -> None:
    inner_ones = {tuple(name.split(".")[1:3]) for name in PARTS if name.count(".") == 3}
    named = {(outer, name) for outer, levels in INSIDE.items() for name in chain(*levels)}
    assert {one for one in inner_ones if one[0] in INSIDE} - named == set()


@pytest.mark.parametrize("module", OF_LARGE)
def test_a_module_of_a_large_package_imports_only_lower_parts_of_it(module: str) -> None:
    _, package, name, *_ = module.split(".")
    beside = {
        other
        for other in imports()[module]
        if other.startswith(f"dsprof.{package}.") and other.split(".")[2] != name
    }
    at = level(module)
    assert {
        other for other in beside if level(other) >= at and (at, level(other)) != (-1, -1)
    } == set()


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {
        name: {other for other in inner(found) if other != name and (name, other) not in UPWARD}
        for name, found in imports().items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_the_declared_exception_is_still_needed() -> None:
    assert {(a, b) for a, b in UPWARD if b in imports()[a]} == UPWARD


def test_nothing_but_the_hook_imports_torch() -> None:
    users = {
        name for name, found in imports().items() if any(n.split(".")[0] == "torch" for n in found)
    }
    assert {name for name in users if name.split(".")[1] != "hook"} == set()


BELOW = [name for name in PARTS if layer(name) <= 3 and not name.startswith("dsprof.run")]


@pytest.mark.parametrize("module", BELOW)
def test_what_training_may_load_imports_nothing_heavy(module: str) -> None:
    """The hook stands on these layers: through none of them pandas may come in."""
    assert {name.split(".")[0] for name in reached(module)} & HEAVY == set()


def loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after `code`."""
    show = "; import sys; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code + show], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


def test_importing_dsprof_loads_next_to_nothing() -> None:
    assert loaded_by("import dsprof") & (HEAVY | {"numpy", "pyarrow", "typer"}) == set()


def test_the_reader_of_logs_does_not_load_pandas() -> None:
    assert loaded_by("import dsprof.logs") & HEAVY == set()


def test_a_report_with_its_page_needs_no_torch(tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    code = f"""
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is asked for")

sys.meta_path.insert(0, NoTorch())
import dsprof
from dsprof.page import write_page
from dsprof.text.document import document
from dsprof.text.summary import summary
run = dsprof.load("sample_logs/neox_pipeline_2023.log")
document(run), summary(run), write_page(run, {str(page)!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert page.stat().st_size > 10_000
