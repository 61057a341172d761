"""Who printed many records, read at once, is who each one's prefix tells."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dsprof.logs.columns import clocks
from dsprof.logs.prefixes.senders import Sender, Senders

PARTS = (
    b"worker-1: ",
    b"worker-23: ",
    b" 3: ",
    b"[default3]:",
    b"[rank6]: ",
    b"[Rank 12] ",
    b"[2024-03-15 13:21:52,800] [INFO] [logging.py:60:log_dist] ",
    b"[2024-03-15 13:21:53,001] [INFO] [timer.py:265:stop] ",
    b"2024-01-02T03:04:05.123456789Z stdout F ",
    b"I1121 05:58:21.685000 4242 trainer.py:10] ",
    b"prose in between ",
    b"x" * 700,
    b"  5%|###       | 5/100 [00:10<03:10,  1.82s/it]",
    b" 50%|#####     | 50/100 [01:10<01:10,  1.82s/it]",
    b"100%|broken",
)
PREFIXES = st.lists(st.sampled_from(PARTS), max_size=5).map(b"".join)
STAMP = st.none() | st.just(b"2024-03-15 13:21:52,800")
KNOWN = st.tuples(st.just(0), STAMP, STAMP)


@given(st.lists(PREFIXES | KNOWN, min_size=1, max_size=60))
def test_senders_read_together_are_those_read_one_by_one(senders: list[Sender | bytes]) -> None:
    together, singly = Senders(), Senders()
    columns = together.read_all(senders, np.arange(len(senders)))
    told = [singly.read(one) if isinstance(one, bytes) else one for one in senders]
    whos = [singly._whos.values[who] for who, *_ in told]
    assert columns["rank"].tolist() == [rank for rank, _, _ in whos]
    assert columns["local"].tolist() == [local for _, local, _ in whos]
    hosts = [together.hosts.values[code] if code >= 0 else None for code in columns["host"]]
    assert hosts == [singly.hosts.values[host] if host >= 0 else None for _, _, host in whos]
    assert together.headers == singly.headers
    at, own = [stamp for _, stamp, _ in told], [stamp for _, _, stamp in told]
    dated = [i for i, stamp in enumerate(at) if stamp is None or stamp[4:5] == b"-"]
    said = clocks.as_logged(clocks.microseconds(own), clocks.microseconds(at))
    assert columns["at"][dated].tolist() == said[dated].tolist()
