"""The text of a record's pairs: whether it tells anything, one record or many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dsprof import grammar
from dsprof.logs.scanning.bodies import tells, tells_of

PAIRED = [pattern for pattern in grammar.builtin().patterns if pattern.pairs is not None]
BODIES = st.lists(st.text("a:=|, 1.2", max_size=12).map(str.encode), min_size=1, max_size=8)


@given(st.sampled_from(PAIRED), BODIES)
def test_many_records_tell_what_each_of_them_does(
    pattern: grammar.Pattern, bodies: list[bytes]
) -> None:
    assert tells_of(bodies, pattern).tolist() == [tells(body, pattern) for body in bodies]
