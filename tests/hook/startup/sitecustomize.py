"""A startup file of the user's own, which must still run where jobs are recorded.

It keeps Python from looking for garbage while torch is imported and again at the end, which takes a
third of the time of a job of four steps.
"""

from __future__ import annotations

import atexit
import gc
import os

os.environ["CHAINED"] = str(os.getpid())  # children inherit it, yet not as their own
gc.set_threshold(50_000, 10, 100)
atexit.register(gc.freeze)
