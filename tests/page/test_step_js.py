"""The script of the page counts as Python does: both draw the same icicle."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from dsprof.charts import phase_table
from dsprof.charts.icicle import _fit
from tests.page.runs import made, with_rows

SCRIPT = Path(__file__).parents[2] / "reports" / "step.js"
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="needs node")


def said(expression: str) -> list[float]:
    """What the script says to an expression that gives a list of numbers."""
    code = f"{SCRIPT.read_text(encoding='utf-8')}\nconsole.log(JSON.stringify([...{expression}]));"
    done = subprocess.run([str(NODE), "-e", code], capture_output=True, text=True, check=True)
    return [float(number) for number in json.loads(done.stdout)]


def test_the_mean_of_a_range_is_that_of_python() -> None:
    saved = {"kind": "phase", "name": "save-checkpoint", "raw": "save-checkpoint", "seconds": 20.0}
    run = with_rows(made(10), saved | {"step": 4, "steps": 1, "rank": 0, "timers": "megatron"})
    sampled = run.phases[(run.phases["step"] % 2 == 0)]
    table = phase_table(sampled, run.steps)
    assert table
    tree = {"names": table.names, "classes": table.classes, "parents": table.parents}
    track = json.dumps({"size": 10, "phases": tree})
    columns = json.dumps([v if np.isfinite(v) else None for v in table.seconds.T.ravel()])
    known = f"{columns}.map((v) => v ?? NaN)"
    for start, stop in ((0, 10), (2, 7), (3, 4)):
        mean = table.mean(slice(start, stop))
        assert said(f"phaseTotals({track}, {known}, {list(range(start, stop))})") == pytest.approx(
            mean
        )


def test_phases_are_fitted_into_the_step_as_in_python() -> None:
    table = phase_table(made(3).phases, made(3).steps)
    assert table
    values = table.mean()
    drawn = said(f"fit({json.dumps(table.parents)}, {json.dumps(values.tolist())}, 1.5)")
    assert drawn == pytest.approx(_fit(table, values, 1.5))


def test_what_the_timers_leave_of_a_whole_step_is_other_time() -> None:
    track = "{ seconds: [2, 2], whole_seconds: [5, NaN], other: [0.5, 0.5] }"
    assert said(f"[0, 1].map((row) => partOf({track}, 'other', row))") == [3.5, 0.5]
    assert said(f"[partOf({track}, 'seconds', 0)]") == [2.0]
