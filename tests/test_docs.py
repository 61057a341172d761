"""What the documents say is so."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

import pytest

from dsprof.cli import Exit, app
from tests.conftest import ROOT, Dsprof

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("*/*.md")])
DOCUMENTS = [d for d in DOCUMENTS if not any(p.startswith(".") for p in d.relative_to(ROOT).parts)]


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_shows_what_the_command_prints(cli: Dsprof) -> None:
    block = readme().partition("```console\n")[2].partition("```")[0].splitlines()
    command, *shown = block
    printed = cli(*command.split()[2:], cwd=ROOT).stdout.splitlines()
    assert shown == printed[: len(shown)], "copy the head of its output into README.md"


def test_the_readme_names_every_command() -> None:
    names = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    assert {name for name in names if f"dsprof {name} " not in readme()} == set()


def test_the_readme_lists_every_exit_code() -> None:
    assert re.findall(r"^\| (\d) \|", readme(), re.MULTILINE) == [str(int(code)) for code in Exit]


def test_the_changelog_is_about_the_version_that_is_here() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.startswith("# Changelog")
    assert re.search(r"^## \[(Unreleased|0\.1\.0)\]", text, re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_makefile_explains_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    head = "\n".join(takewhile(lambda line: line.startswith("#"), text.splitlines()))
    targets = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert targets is not None
    assert [name for name in targets[1].split() if f"make {name} " not in head] == []


def test_what_the_architecture_names_is_there() -> None:
    """`text.words.plain`: a module of dsprof, or what one of them defines."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", text))
    ours = {name for name in named if (ROOT / "dsprof" / name.partition(".")[0]).is_dir()}
    assert "text.words.plain" in ours
    assert {name for name in ours if not _is_there(name)} == set()


def _is_there(name: str) -> bool:
    path = ROOT / "dsprof" / name.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    inside = path.parent
    module = inside / "__init__.py" if inside.is_dir() else inside.with_suffix(".py")
    defined = rf"^(?:(?:def|class) {path.name}\b|{path.name}\b.*=)"
    text = module.read_text(encoding="utf-8") if module.is_file() else ""
    return re.search(defined, text, re.MULTILINE) is not None
