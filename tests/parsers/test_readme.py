"""What parsers/README.md shows is what works when it is copied."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsprof import grammar
from dsprof.run import load
from dsprof.text.dialects import mistakes

README = grammar.builtin_folder() / "README.md"
BLOCKS = re.findall(r"```toml\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
FILE = BLOCKS[0]
SMALLEST = next(block for block in BLOCKS if block.startswith("[[timers]]"))
TICK = "acme tick {}: loss 2.31, data 50.0 ms, model 140.0 ms, all 200.0 ms\n"


def _log_of(folder: Path, text: str) -> Path:
    log = folder / "run.log"
    log.write_text("".join(text.format(step) for step in range(1, 41)), encoding="utf-8")
    return log


def test_the_file_that_the_page_shows_is_read_back_without_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "acme.toml").write_text(FILE, encoding="utf-8")
    assert mistakes(tmp_path) == []


def test_the_file_that_the_page_shows_divides_the_steps_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "acme.toml").write_text(FILE, encoding="utf-8")
    run = load([_log_of(tmp_path, TICK)], parsers=[tmp_path])
    assert run.steps["step"].tolist() == [*range(1, 41)]
    assert run.steps["seconds"].tolist() == pytest.approx([0.2] * 40)
    assert run.steps["data"].tolist() == pytest.approx([0.05] * 40)


def test_a_phase_has_a_class_only_through_the_tree_of_a_flavour(tmp_path: Path) -> None:
    pattern = FILE[: FILE.index("[[timers]]")].replace('model = "phase model ms"\n', "")
    for tree, class_ in (("", "other"), (SMALLEST, "data")):
        (tmp_path / "acme.toml").write_text(pattern + tree, encoding="utf-8")
        run = load([_log_of(tmp_path, TICK)], parsers=[tmp_path])
        assert set(run.phases["class"]) == {class_}
