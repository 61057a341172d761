"""Quantities as people read them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from dsprof.units import format_seconds

SCRIPT = Path(__file__).parents[1] / "reports" / "format.js"
NODE = shutil.which("node")
SAID = {
    0.0: "0 s",
    1e-12: "0 s",
    -3e-17: "0 s",
    2e-9: "0.0020 µs",
    45e-6: "45.0 µs",
    0.302: "302 ms",
    5.79: "5.79 s",
    7500.0: "2 h 05 min",
}


def test_seconds_are_written_with_a_unit_and_what_rounding_leaves_is_nothing() -> None:
    assert {seconds: format_seconds(seconds) for seconds in SAID} == SAID


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_page_writes_seconds_as_python_does() -> None:
    code = f"{SCRIPT.read_text(encoding='utf-8')}\nconst asked = {json.dumps(list(SAID))};"
    code += "console.log(JSON.stringify(asked.map(seconds)));"
    done = subprocess.run([str(NODE), "-e", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == list(SAID.values())
