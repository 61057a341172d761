"""What the tests of the terminal share: samples, and what is printed of a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path

from rich.console import Console, RenderableType

from dsprof.run import Run
from dsprof.text.summary import summary

Sample = Callable[[str], Run]

SEED = "neox_pipeline_2023"
VARIED = (SEED, "killed_rank_0.19.8", "quiet_0.19.8", "comms_table_0.19.8", "fp16_overflow_0.19.8")


def shown(run: Run, width: int = 80, *, blocks: bool = True, colour: bool = False) -> str:
    file = StringIO()
    console = Console(file=file, width=width, highlight=False, force_terminal=colour)
    console.print(summary(run, blocks=blocks))
    return file.getvalue()


def rendered(what: RenderableType, width: int) -> str:
    file = StringIO()
    Console(file=file, width=width, highlight=False).print(what)
    return file.getvalue()


def dsprof_sample(name: str) -> Path:
    return Path(__file__).parents[2] / "sample_logs" / f"{name}.log"


def rows_of(text: str, section: str) -> list[str]:
    """A heading and the lines that stand under it."""
    found = re.search(rf"^{section}( .*)?\n(.+\n)*", text, re.MULTILINE)
    return found[0].splitlines() if found else [""]


#: The Trainer's last record, of two ranks.
TRAINER = """{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 1.0}
{'train_runtime': 198.0, 'train_samples_per_second': 30.0, 'train_steps_per_second': 0.4}
{'train_runtime': 200.0, 'train_samples_per_second': 32.0, 'train_steps_per_second': 0.5}
"""
BAR = """ 10%|█         | 10/101 [00:20<03:02,  2.00s/it]
 99%|█████████▉| 100/101 [03:20<00:02,  2.00s/it]
"""
