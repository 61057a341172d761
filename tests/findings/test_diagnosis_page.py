"""docs/diagnosis.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from dsprof.findings import RULES, thresholds

PAGE = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text(encoding="utf-8")
IN_CODE = {name: value for name, value in vars(thresholds).items() if name.isupper()}


def test_the_table_of_thresholds_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `([A-Z0-9_]+)` \| ([\d.]+) \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert {name: float(value) for name, value in rows} == IN_CODE
    assert len(rows) == len(IN_CODE)


def test_every_threshold_is_explained_where_it_is_used() -> None:
    text = PAGE[: PAGE.index("## Thresholds")]
    missing = [name for name in IN_CODE if f"`{name}`" not in text]
    assert not missing


def test_no_threshold_is_named_that_does_not_exist() -> None:
    named = set(re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", PAGE))
    assert named == set(IN_CODE)


def test_every_rule_has_its_section_and_says_when_it_abstains() -> None:
    sections = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
    assert set(sections) == {*RULES, "healthy"}
    silent = [name for name, text in sections.items() if "bstains" not in text]
    assert silent == ["healthy"]  # it says instead what it needs


def test_every_threshold_is_used() -> None:
    folder = Path(thresholds.__file__).parent
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in folder.rglob("*.py")
        if path.name != "thresholds.py"
    )
    assert not [name for name in IN_CODE if not re.search(rf"\b{name}\b", code)]
