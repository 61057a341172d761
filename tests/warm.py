"""What each run of the command line would work out anew: imported where runs are forked from.

What is read, compiled and imported once is there then for all of them; what a run finds, no other
sees.
"""

from __future__ import annotations

import gc
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from typer.main import get_command

from dsprof import cli, doctor

__all__ = ["doctor"]

_SAMPLE = str(Path(__file__).parents[1] / "sample_logs" / "neox_pipeline_2023.log")


def _warm(folder: Path) -> None:
    commands = (
        ["report", _SAMPLE, "-o", str(folder / "run.html"), "--json", str(folder / "run.json")],
        ["export", _SAMPLE, "-o", str(folder / "run.csv")],
        ["compare", _SAMPLE, _SAMPLE],
    )
    for arguments in commands:
        get_command(cli.app)(arguments, standalone_mode=False)


with TemporaryDirectory() as name, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
    _warm(Path(name))
gc.freeze()  # forks need not look through what was there before them
