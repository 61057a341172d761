"""`key: value` text: the bulk path and the strict one give the same pairs."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsprof import grammar
from dsprof.grammar import Pairs
from dsprof.logs.columns import pairs as module
from dsprof.logs.columns.measures import numbers_of
from dsprof.logs.columns.pairs import Found, end_of_pairs, pairs_of
from dsprof.run import load

TIMERS = Pairs(b"|", b":", b"", "metric {key}", {"eta": "metric eta clock"})
DICT = Pairs(b",", b":", b"}", "metric {key}")
BODY = st.text(" a1.:|,'\"\t[]e-", max_size=40).map(str.encode)
PLAIN = st.lists(
    st.tuples(st.sampled_from(["fwd", "bwd step", "eta"]), st.floats(0, 1e6)), max_size=6
).map(lambda pairs: " | ".join(f"{key}: {value:.2f}" for key, value in pairs).encode())


def triples(found: Found) -> list[tuple[int, bytes, bytes]]:
    values = found.value if isinstance(found.value, list) else found.value.to_pylist()
    keys = [found.key[code] for code in found.code.tolist()]
    return list(zip(found.record.tolist(), keys, values, strict=True))


@settings(max_examples=300)
@given(st.lists(st.one_of(BODY, PLAIN), min_size=1, max_size=30), st.sampled_from([TIMERS, DICT]))
def test_the_bulk_path_gives_the_pairs_of_the_strict_one(bodies: list[bytes], pairs: Pairs) -> None:
    bulk = module._bulk(b"\n".join([*bodies, b""]), bodies, pairs)
    assert triples(bulk) == triples(module._strict(range(len(bodies)), bodies, pairs))


def test_many_records_take_the_bulk_path(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(module, "_strict", lambda numbers, *_: seen.extend(numbers))
    assert len(triples(pairs_of([b"fwd: 1.00 | bwd: 2.00"] * 1000, TIMERS))) == 2000
    assert seen == []


@pytest.mark.parametrize("records", [1, 100])
def test_a_number_as_numpy_prints_it_is_that_number(records: int) -> None:
    body = b"'loss': np.float64(0.25), 'accuracy': np.float32(1e-3), 'mode': np.str_('a')"
    found = triples(pairs_of([body] * records, DICT))
    told = [(b"loss", b"0.25"), (b"accuracy", b"1e-3"), (b"mode", b"np.str_('a')")]
    assert [(key, value) for number, key, value in found if number == 0] == told
    assert len(found) == 3 * records


@pytest.mark.parametrize("records", [1, 100])
def test_a_pair_that_is_marked_bold_is_read_as_any_other(records: int) -> None:
    found = triples(pairs_of([b"lr: 0.1 | **fwd (ms): 2.5** | bwd: 1.0"] * records, TIMERS))
    assert found[-3:] == [
        (records - 1, b"lr", b"0.1"),
        (records - 1, b"fwd (ms)", b"2.5"),
        (records - 1, b"bwd", b"1.0"),
    ]


def test_one_odd_record_does_not_slow_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    strict = module._strict

    def counted(numbers: list[int], bodies: list[bytes], pairs: Pairs) -> Found:
        seen.extend(numbers)
        return strict(numbers, bodies, pairs)

    monkeypatch.setattr(module, "_strict", counted)
    bodies = (
        [b"fwd: 1.00 | bwd: 2.00"] * 500 + [b"fwd 1.00"] + [b"eta: 1:02:03"] * 2 + [b"a: 5"] * 99
    )
    found = triples(pairs_of(bodies, TIMERS))
    assert seen == [500, 501, 502]
    assert found[1000:1003] == [
        (501, b"eta", b"1:02:03"),
        (502, b"eta", b"1:02:03"),
        (503, b"a", b"5"),
    ]


def test_a_key_or_value_that_is_missing_gives_no_pair() -> None:
    text = b" fwd: 1.0 | : 2.0 | bwd: | | 'x' : ' 3.0 ' "
    expected = [(b"fwd", b"1.0"), (b"x", b"3.0")]
    assert [pair[1:] for pair in triples(pairs_of([text], TIMERS))] == expected
    assert [pair[1:] for pair in triples(pairs_of([text] * 100, TIMERS))] == expected * 100


@pytest.mark.parametrize("array", [False, True])
def test_numbers_of_a_column(array: bool) -> None:
    texts = [
        b"1.5",
        b"-2e-3",
        b"nan",
        b"inf",
        b"N/A",
        b"9" * 10_000,
        b".5",
        b"1.",
        b"",
        b"\xff",
        b"0x1",
        b"13.5/12.0",
        b"5/100",
    ]
    values, missing = numbers_of(pa.array(texts, pa.binary()) if array else texts)
    assert missing.tolist() == [False] * 4 + [True] * 2 + [False] * 2 + [True] * 3 + [False, True]
    assert values[:2].tolist() == [1.5, -0.002]
    assert values[6:8].tolist() == [0.5, 1.0]
    assert values[11] == 13.5  # a mean behind it is another number; a count of a total is none
    assert math.isnan(values[2])
    assert math.isinf(values[3])


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (b"fwd: 1.0 | bwd: 2.0 [2024-", b" [2024-"),
        (b"fwd: 1.0 | bwd: 2.0", b""),
        (b"fwd: 1.0 | ste", b"| ste"),
        (b"fwd: nan tail", b" tail"),
        (b"nothing", b"nothing"),
    ],
)
def test_pairs_end_where_another_record_begins(text: bytes, rest: bytes) -> None:
    assert text[end_of_pairs(text, TIMERS) :].lstrip() == rest.lstrip()


@pytest.mark.parametrize("glued", ["INFO:root:hello", '"}', "[rank1]: 3.5", "W0506 10:00:00 x"])
def test_text_that_is_glued_to_the_last_timer_is_none_of_it(tmp_path: Path, glued: str) -> None:
    """Another process lost its line break; a collector made a JSON string of the line."""
    line = (
        "[2024-05-06 10:00:00,150] [INFO] [logging.py:128:log_dist] [Rank 0] time (ms) | "
        "fwd: 100.00 | bwd: 600.00 | bwd_inner: 200.00 | bwd_allreduce: 400.00 | step: 50.25"
    )
    log = tmp_path / "run.log"
    log.write_text("".join(f"{line}{glued}\n" for _ in range(3)))
    phases = load(log).phases
    found = phases.loc[phases["name"] == "step", "seconds"].tolist()
    assert found == [pytest.approx(0.05025)] * 3
    assert phases["name"].nunique() == 5


def test_a_key_that_is_not_listed_is_named_as_the_pattern_says(tmp_path: Path) -> None:
    """A loss of the validation is none of the training."""
    log = tmp_path / "run.log"
    log.write_text(
        " validation loss at iteration 20 | loss: 2.500000E+00 | sop loss value: 0.5 |\n"
    )
    events = load(log).events
    assert set(events["name"]) == {"eval_loss", "eval_sop loss value"}


OWN = """
[[pattern]]
name = "mine"
needle = "[mine] "
place = "own"
[pattern.pairs]
separator = "|"
assign = ":"
[pattern.keys]
phase = "metric stage text"
held = "memory allocated size"
"""


def test_the_words_of_a_key_are_kept_where_its_unit_is_text(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(OWN)
    (tmp_path / "run.log").write_text("[mine] loss: 1.5 | phase: warm up | held: N/A\n")
    run = load(tmp_path / "run.log", grammar=grammar.load([tmp_path]))
    assert run.events["name"].tolist() == ["loss", "stage"]
    assert run.events["text"].tolist()[1] == "warm up"
