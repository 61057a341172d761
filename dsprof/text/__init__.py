"""A run in words: the terminal summary, and the JSON document other programs read."""

from __future__ import annotations

from dsprof.text.difference import difference
from dsprof.text.document import SCHEMA, document
from dsprof.text.examination import examination
from dsprof.text.summary import summary
from dsprof.text.words import plain

__all__ = ["SCHEMA", "difference", "document", "examination", "plain", "summary"]
