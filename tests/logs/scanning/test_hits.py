"""Hits that are read together and hits that are read one by one give the same events."""

from __future__ import annotations

import pytest

from dsprof import grammar
from dsprof.logs import Reader
from dsprof.logs.scanning import scan
from dsprof.logs.sources.source import Source

GRAMMAR = grammar.builtin()
TEXT = b"".join(sample.text.rstrip(b"\n") + b"\n" for sample in GRAMMAR.samples)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r", b" [rank1]: "], ids=repr)
def test_hits_read_together_say_what_they_say_one_by_one(
    end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEXT.replace(b"\n", end) + b"\n" + TEXT
    told = []
    for few in (0, len(text)):
        monkeypatch.setattr(scan, "_FEW", few)
        reader = Reader(GRAMMAR, Source("mixed.log"))
        reader.feed(text)
        reader.finish()
        told.append(reader.log().events.to_pylist())
    assert repr(told[0]) == repr(told[1])
    assert told[0]
