"""Steps that another optimizer of the model ends, as those of a generator between its critic's."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.findings.facts import Facts
from dsprof.findings.seen.anew import counts

_INDEX: Final = "optimizer_index"


def are_of_another(facts: Facts, steps: pd.DataFrame, rows: npt.NDArray[np.intp]) -> bool:
    """Whether one optimizer ended most of the steps that stick out (`rows` of `steps`), and few of
    the others."""
    ended = counts(facts, steps, _INDEX).astype(np.int64)
    if not len(rows) or not np.ptp(ended):
        return False
    among = np.bincount(ended[rows])
    most = int(among.argmax())
    return bool(2 * among[most] >= len(rows) and np.count_nonzero(ended == most) <= 2 * among[most])
