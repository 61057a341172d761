"""What holds a step back: one word, from the shares of its time.

The rule, in order:

1. Unknown where the step's seconds, or its split, are not known.
2. The largest of the costs that are not compute, if it takes `HEAVY` of the step or
   more than compute does. Collectives and point-to-point waiting count together, since
   both are what a faster network or a better schedule would win back; the larger of the
   two names them (communication or pipeline).
3. A communication-bound step is a straggler's if one rank worked longer than the median
   rank by at least `STRAGGLE` of the step and that explains half of the waiting.
4. Compute, where it is known and nothing else is heavy.
5. Unknown where communication is not known: a known cost must then reach `SURE` of the
   step to be named, because the unknown one might be larger.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Bound, Class
from dsprof.run.table import Numbers

HEAVY: Final = 0.30
SURE: Final = 0.50
STRAGGLE: Final = 0.10

_COSTS: Final = {
    Class.DATA: Bound.DATA,
    Class.OPTIMIZER: Bound.OPTIMIZER,
    Class.OFFLOAD: Bound.OFFLOAD,
}


def bound_of(shares: pd.DataFrame, excess: Numbers) -> pd.Series:
    """The bound of each step.

    Args:
        shares: a column per class, parts of the step (0 to 1), NaN where unknown.
        excess: part of the step by which the slowest rank worked longer than the median
            one; NaN where the ranks are not known.
    """
    known = shares.fillna(0.0)
    moving = (known[Class.COMMUNICATION] + known[Class.WAIT]).to_numpy()
    waits = (known[Class.WAIT] > known[Class.COMMUNICATION]).to_numpy()
    straggles = ~waits & (excess >= STRAGGLE) & (excess >= moving / 2)
    names = [Bound.COMMUNICATION, *_COSTS.values()]
    costs = np.column_stack([moving, *(known[word].to_numpy() for word in _COSTS)])
    largest, most = costs.argmax(axis=1), costs.max(axis=1, initial=0.0)
    cost = np.array([str(name) for name in names], dtype=object)[largest]
    cost[waits & (largest == 0)] = str(Bound.PIPELINE)
    cost[straggles & (largest == 0)] = str(Bound.STRAGGLER)
    compute = known[Class.COMPUTE].to_numpy()
    # Where communication is unknown only a cost that nothing else can exceed is named.
    blind = shares[Class.COMMUNICATION].isna().to_numpy()
    named = np.where(blind, most >= SURE, (most >= HEAVY) | (most > compute)) & (most > 0)
    computes = ~blind & (compute > 0) & (compute >= known[Class.OTHER].to_numpy())
    word = np.where(named, cost, np.where(computes, str(Bound.COMPUTE), str(Bound.UNKNOWN)))
    word[shares.isna().all(axis=1).to_numpy()] = str(Bound.UNKNOWN)
    return pd.Series(word, index=shares.index).astype("str").astype("category")
