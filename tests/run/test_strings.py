"""However strings are kept, a run is the same."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dsprof
from dsprof.run.ends.problems import GAVE_UP, OF_A_PEER, OF_ANOTHER
from dsprof.text.document import document
from tests.conftest import SAMPLES
from tests.loaded import sample

KINDS = "neox_pipeline_2023", "checkpoint_0.19.8", "killed_rank_0.19.8", "comms_table_0.19.8"


@pytest.mark.parametrize("name", KINDS)
def test_whoever_imports_dsprof_is_told_what_a_command_tells(name: str) -> None:
    """Neither asks pandas for anything: others in that process may count on what it does."""
    with pd.option_context("mode.string_storage", "pyarrow"):
        run = dsprof.load(SAMPLES / f"{name}.log")
        told = document(run)
        assert names(run).storage == "pyarrow"
    mine = sample(name)
    assert names(mine).storage == "python"
    assert told == document(mine)
    for view in ("events", "steps", "phases", "comm", "problems", "repairs"):
        own, theirs = (getattr(one, view) for one in (mine, run))
        pd.testing.assert_frame_equal(
            own, theirs, check_dtype=False, check_column_type=False, check_categorical=False
        )


@pytest.mark.parametrize("pattern", [OF_A_PEER, OF_ANOTHER, GAVE_UP])
def test_arrow_understands_what_problems_are_searched_for(pattern: str) -> None:
    """Pandas 3.0 asks it in whoever's process, and it repeats nothing more than 1,000 times."""
    assert pc.match_substring_regex(pa.array(["Connection closed"]), pattern) is not None


def names(run: dsprof.Run) -> pd.StringDtype:
    """Of what type the names of columns are."""
    kind = run.steps.columns.dtype
    assert isinstance(kind, pd.StringDtype)
    return kind
