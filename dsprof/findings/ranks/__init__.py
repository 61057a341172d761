"""Ranks and stages against each other: who is late, and who waits."""
