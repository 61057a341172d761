"""Colours by role, for paper and for the night; one accent, for communication.

Pages, figures and screens share them.
"""

from __future__ import annotations

from typing import Final

#: role -> (light, dark). Text roles reach a contrast of 4.5 on `paper`.
PALETTE: Final = {
    "paper": ("#ffffff", "#15181c"),
    "raised": ("#f6f7f8", "#1c2026"),
    "ink": ("#1a1e24", "#e6e9ed"),
    "muted": ("#59626d", "#9aa4b0"),
    "line": ("#dde1e6", "#2d333b"),
    "grid": ("#e9ecf0", "#252a31"),
    "communication": ("#cf4a0c", "#ff8a47"),
    "wait": ("#f2b48f", "#96532d"),
    "compute": ("#43617f", "#7c9cbd"),
    "mixed": ("#6a7f95", "#8096ac"),
    "optimizer": ("#8da3b8", "#536a82"),
    "data": ("#a3a071", "#6b6844"),
    "offload": ("#6f6189", "#9788b3"),
    "checkpoint": ("#4d7263", "#74a08d"),
    "other": ("#c3cad2", "#454d58"),
    "unknown": ("#e3e7ec", "#2a3038"),
}
