"""Every finding of every real log can be followed to lines that say what it claims."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest

from dsprof.findings import Evidence
from dsprof.findings.evidence import largest, phase_evidence, whole
from dsprof.run import Run
from dsprof.text.words import plain
from dsprof.units import BYTES, SECONDS
from tests.findings.test_real_logs import LOGS, judged

_BANDWIDTH = {f"{unit}/s": 1000.0**power for power, unit in enumerate(("B", "KB", "MB", "GB"))}
_UNITS = SECONDS | BYTES | _BANDWIDTH
_MEASURED = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?) (ns|µs|ms|s|B|[KMGT]iB|[KMG]?B/s)(?![\w/])")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")


@pytest.fixture(scope="module", params=LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def run(request: pytest.FixtureRequest) -> Run:
    return judged(request.param)[0]


def proofs(run: Run) -> Iterator[tuple[str, Evidence]]:
    for found in run.findings:
        for proof in found.evidence:
            yield found.title, proof


@cache
def lines_of(source: str) -> list[str]:
    text = Path(source).read_bytes().decode("utf-8", errors="replace")
    return text.split("\n")


def line_of(proof: Evidence) -> str:
    assert proof.line is not None
    return _ESCAPE.sub("", lines_of(proof.source)[proof.line - 1]).strip()


def test_every_proof_stands_on_a_line_that_is_there(run: Run) -> None:
    for title, proof in proofs(run):
        assert proof.source, title
        assert proof.line is not None, (title, proof)
        assert 1 <= proof.line <= len(lines_of(proof.source)), (title, proof)
        assert line_of(proof), (title, proof)


def test_every_finding_has_a_proof_or_says_what_the_source_lacks(run: Run) -> None:
    for found in run.findings:
        assert found.evidence or found.rule == "unaccounted-time", found.title


def test_the_line_of_a_proof_says_what_the_proof_says(run: Run) -> None:
    for title, proof in proofs(run):
        if title.startswith("Some numbers of this source are doubtful"):
            continue  # its proofs are explanations
        line = line_of(proof)
        assert quoted(proof.text, line) or measured(run, proof) or counted(proof, line), (
            title,
            proof,
            line[:300],
        )


def quoted(text: str, line: str) -> bool:
    """The proof is the line's own words."""
    words = re.findall(r"\w+", plain(text))
    return " ".join(words[:6]) in " ".join(re.findall(r"\w+", line))


def measured(run: Run, proof: Evidence) -> bool:
    """A measure of the proof is on its line, or what one step has of the line's sum."""
    said = [number(value) * _UNITS[unit] for value, unit in _MEASURED.findall(proof.text)]
    told = run.as_told
    here = told[(told["line"] == proof.line) & (told["source"].astype("str") == proof.source)]
    known = list(values(here))
    barred = run.steps[(run.steps["line"] == proof.line) & (run.steps["seconds_from"] == "bar")]
    if len(barred):  # by the bars beside its line and the one before it
        bars = told.loc[told["name"] == "bar_elapsed", "seconds"].unique()
        known += [(b - a) / barred["covers"].iloc[0] for a, b in combinations(bars, 2)]
    known += [a - b for a in known for b in known]
    known += [sum(some) for n in (2, 3) for some in combinations(dict.fromkeys(known[:12]), n)]
    if any(math.isclose(one, other, rel_tol=0.012) for one in said for other in known):
        return True
    micro = here.loc[here["steps"].isna(), "seconds"].dropna()  # one of those that a step sums
    return any(one / 64 <= part <= one for one in said for part in micro)


def values(rows: pd.DataFrame) -> Iterator[float]:
    for column in ("seconds", "bytes", "value"):
        numbers = pd.to_numeric(rows[column], errors="coerce")
        for shared in (numbers, numbers / rows["steps"].astype(float)):
            yield from (float(one) for one in shared.dropna())


def counted(proof: Evidence, line: str) -> bool:
    """A count of the proof stands on its line."""
    there = {number(one) for one in _NUMBER.findall(line)}
    said = [number(one) for one in _NUMBER.findall(_MEASURED.sub("", proof.text))]
    words = {"inf", "nan"} & set(proof.text.split()) & set(re.findall(r"\w+", line.lower()))
    return bool(words) or any(one in there for one in said)


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_the_last_of_the_largest_rows_proves_and_a_missing_number_never_does() -> None:
    rows = pd.DataFrame({"seconds": pd.array([None, 2.0, 2.0, 1.0], dtype="Float64")})
    assert largest(rows, "seconds").name == 2


def test_a_line_that_is_unknown_stays_so() -> None:
    assert whole(pd.NA) is None
    assert whole(7.0) == 7


def test_a_phase_that_holds_others_is_told_without_them_and_as_part_of_its_line() -> None:
    shown = {"step": 9, "raw": "step", "source": "run.log", "line": 4}
    row = {"seconds": 0.5, "shown": 0.25, "held": 1.0, **shown}
    (proof,) = phase_evidence(pd.DataFrame([row], index=["step"]))
    assert proof.line == 4
    assert "itself, without the timers inside it" in proof.text
    assert proof.text.endswith("500 ms per step, at step 9: 250 ms of 1.00 s")
