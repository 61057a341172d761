"""Which DeepSpeed a run is of, as far as a rule has to know."""

from __future__ import annotations

from collections.abc import Callable

from dsprof.findings.facts import Facts
from dsprof.run.releases import LAST, Version, parse
from dsprof.run.versions import is_older


def is_known(facts: Facts, holds: Callable[[Version, Version], bool]) -> bool:
    """Whether the range of possible DeepSpeed versions is known and `holds(oldest, newest)`."""
    spans = str(facts.run.meta.get("version_range", "")).partition(" (")[0]
    if not spans[:1].isdigit():
        return False
    newest = LAST if spans.endswith("later") else parse(spans.rpartition(" ")[2])
    return holds(parse(spans.partition(" ")[0]), newest)


def predates(facts: Facts, version: str) -> bool:
    """Whether this is surely of an earlier DeepSpeed: by its lines, or by their dates."""
    first = parse(version)
    return is_known(facts, lambda _, last: last < first) or is_older(facts.run.told, version)
