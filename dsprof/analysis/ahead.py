"""Whether the host is ahead of its GPU, from the moments of a recording."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.run.recorded.moments import PHASE, UNKNOWN, ends
from dsprof.run.steps.words import holder_of, own_name
from dsprof.run.table import where

_FORWARD, _SYNCHRONIZE = "forward", "synchronize"
_VISIT: Final = ["step", "rank", "path"]
_AT_ONCE: Final = 50e-6  # seconds; a device that waits for a mark passes it within 20 us
_SHARE: Final = 0.02  # of the forward, by which a host that is ahead is ahead at least
_MOST: Final = 0.5  # of the forward must lie behind the last wait of the host inside it


def forwards(moments: pd.DataFrame) -> pd.DataFrame:
    """The forwards, and of each whether it was over on the GPU as soon as the host had ended it
    (`at_once`): the GPU had nothing left to do.

    A host that launches faster than the GPU computes is ahead by then. So either it does not, or
    something in the forward made it wait for the GPU. Forwards with a recorded wait of that kind
    (`synchronize`) in their second half are left out, as are those of unknown moments.

    Args:
        moments: of whole steps, see `Run.moments`.
    """
    rows = moments[(moments["what"] == PHASE) & moments["begin"].ne(UNKNOWN)]
    rows = rows[rows["seconds"].notna()]
    name = rows["path"].map(own_name)
    found = rows[(name == _FORWARD) & rows["behind"].notna()]
    waits = rows[name == _SYNCHRONIZE]
    waits = waits.assign(path=waits["path"].map(holder_of), waited=ends(waits))
    waited = found[[*_VISIT, "begin"]].reset_index().merge(waits[[*_VISIT, "waited"]], on=_VISIT)
    end = pd.Series(ends(found), found.index)
    inside = (waited["waited"] > waited["begin"]) & (
        waited["waited"] <= end.reindex(waited["index"]).to_numpy()
    )
    last = waited[inside].groupby("index")["waited"].max().reindex(found.index)
    begin = last.fillna(found["begin"]).to_numpy(np.int64)
    left = (end.to_numpy(np.int64) - begin) * 1e-9
    least = np.maximum(_AT_ONCE, _SHARE * left)
    found = found.assign(at_once=found["behind"].to_numpy(float) < least)
    late_enough = left >= _MOST * found["seconds"].to_numpy(float)
    return where(found, late_enough)
