"""A rank that never begins to train."""

from __future__ import annotations

import time

import torch

import dsprof.hook.entering.beginning
import dsprof.hook.looking.standing


def waits() -> None:
    print(torch.__version__, flush=True)
    time.sleep(120)


vars(dsprof.hook.entering.beginning).update(LONG=0.1)  # seconds that count as a long time
vars(dsprof.hook.looking.standing).update(LEAST=1)  # look into that
waits()
