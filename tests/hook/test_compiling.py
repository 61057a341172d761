"""A compiled function that trains: the hook makes no graph of its own, and breaks none."""

from __future__ import annotations

import json
from pathlib import Path

from tests.hook.jobs_of import launch


def test_a_compiled_step_has_as_many_graphs_with_the_hook_as_without(tmp_path: Path) -> None:
    assert launch("compiled", (1, tmp_path))
    result = json.loads((tmp_path / "result-0.json").read_text(encoding="utf-8"))
    assert result["plain"]["graphs"] > 1
    assert result["watched"] == result["plain"]
