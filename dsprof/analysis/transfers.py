"""What messages between the stages of a pipeline take themselves, from the moments of recordings.

A message holds up the stage that comes to it first until the other one does, and both for as long
as it is under way. So it takes as long as it holds up the one that is held up less; longer, where a
backend lets the sender go on before it has arrived. No clock is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from dsprof.run.recorded.moments import CALL
from dsprof.run.steps.words import holder_of, own_name
from dsprof.run.table import STEP

COLUMNS: Final = ("step", "rank", "peer", "seconds", "bytes")

#: Phases of DeepSpeed's pipeline engine that send, that receive the same, and how many stages on.
_WAYS: Final = (
    ("pipe_send_output", "pipe_recv_input", 1),
    ("pipe_send_grad", "pipe_recv_grad", -1),
)
_LINK: Final = [*STEP, "from"]
_MESSAGE: Final = [*_LINK, "number"]


def transfers(moments: pd.DataFrame, ranks: Sequence[int]) -> pd.DataFrame:
    """`COLUMNS` of each message from `rank` to `peer`, as far as both sides are known.

    Left out are steps in which one of two neighbours is not known to have sent as often as the
    other has received, as where rows of calls stand for several.

    Args:
        moments: of whole steps, see `Run.moments`.
        ranks: one of each stage, in the order of stages.
    """
    stages = {rank: stage for stage, rank in enumerate(ranks)}
    calls = moments[(moments["what"] == CALL) & moments["rank"].isin(ranks)]
    calls = calls.assign(
        phase=calls["path"].map(holder_of).map(own_name), stage=calls["rank"].map(stages)
    )
    found = [
        _paired(
            _numbered(calls[calls["phase"] == sends].assign(**{"from": calls["stage"]})),
            _numbered(calls[calls["phase"] == receives].assign(**{"from": calls["stage"] - on})),
        )
        for sends, receives, on in _WAYS
    ]
    return pd.concat(found, ignore_index=True)[list(COLUMNS)]


def _numbered(calls: pd.DataFrame) -> pd.DataFrame:
    """Messages of a link, in order; none where a row stands for several or its time is unknown."""
    calls = calls.assign(told=calls["seconds"].notna() & calls["count"].eq(1))
    links = calls.groupby(_LINK)
    whole = links["told"].transform("all").astype(bool)
    return calls.assign(number=links.cumcount(), many=links["told"].transform("size"))[whole]


def _paired(sent: pd.DataFrame, received: pd.DataFrame) -> pd.DataFrame:
    both = sent.merge(received, on=[*_MESSAGE, "many"], suffixes=("", "_there"))
    both = both[both["bytes"].eq(both["bytes_there"])]
    seconds = np.minimum(both["seconds"], both["seconds_there"])
    return both.assign(seconds=seconds, peer=both["rank_there"])
