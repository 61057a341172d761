"""The oldest dependencies that are allowed are those that `make oldest` tests."""

from __future__ import annotations

import re
import tomllib

from tests.conftest import ROOT


def test_the_oldest_versions_are_those_that_are_allowed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    allowed = dict(re.findall(r"([\w-]+)>=([\d.]+)", "\n".join(project["dependencies"])))
    lines = (ROOT / "tests" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert tested.keys() == allowed.keys()
    assert [
        name for name, oldest in allowed.items() if not f"{tested[name]}.".startswith(oldest)
    ] == []
