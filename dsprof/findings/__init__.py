"""What is wrong with a run, the verdict first; every rule is described in docs/diagnosis.md.

The rules import pandas only when they are first used: code that only shows findings needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsprof.findings.finding import Abstention, Advice, Evidence, Finding

if TYPE_CHECKING:
    from dsprof.findings.rules import RULES, abstentions_of, findings_of

__all__ = ["RULES", "Abstention", "Advice", "Evidence", "Finding", "abstentions_of", "findings_of"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dsprof.findings import rules

    return getattr(rules, name)
