"""What holds a step back: one word, from the shares of its time.

The rule:

1. Collectives and point-to-point waiting count as one cost, since both are what a faster
   network or a better schedule would win back; the larger of the two names it
   (communication or pipeline). Data, optimizer and offload are costs of their own.
2. The largest cost is named if it takes `HEAVY` of the step or more than compute does.
   Otherwise compute is, where it was measured by timers that hold no communication.
3. Neither is named if something unknown may be as large: the time that no timer explains,
   and, where communication was not measured, the compute timers too, since they hold it.
   (A pipeline's timers do not: waiting is measured beside them.)
4. A step bound by communication is a straggler's if one rank worked longer than the median
   rank by at least `STRAGGLE` of the step and that explains half of the waiting.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Bound, Class
from dsprof.run.table import Numbers

HEAVY: Final = 0.30
STRAGGLE: Final = 0.10

_COSTS: Final = {
    Class.DATA: Bound.DATA,
    Class.OPTIMIZER: Bound.OPTIMIZER,
    Class.OFFLOAD: Bound.OFFLOAD,
}


def bound_of(shares: pd.DataFrame, excess: Numbers, *, hidden: bool = False) -> pd.Series:
    """The bound of each step.

    Args:
        shares: a column per class, parts of the step (0 to 1), NaN where unknown.
        excess: part of the step by which the slowest rank worked longer than the median
            one; NaN where the ranks are not known.
        hidden: timers of compute hold communication, too.
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
    compute, other = (known[word].to_numpy() for word in (Class.COMPUTE, Class.OTHER))
    blind = shares[Class.COMMUNICATION].isna().to_numpy()
    held = blind & shares[Class.WAIT].isna().to_numpy()
    named = ((most >= HEAVY) | (most >= compute)) & (most > other + np.where(held, compute, 0.0))
    computes = (compute > other) & ~held & ~(blind & (other >= HEAVY))
    else_ = str(Bound.UNKNOWN if hidden else Bound.COMPUTE)
    word = np.where(named, cost, np.where(computes, else_, str(Bound.UNKNOWN)))
    word[shares.isna().all(axis=1).to_numpy()] = str(Bound.UNKNOWN)
    return pd.Series(word, index=shares.index).astype("str").astype("category")
