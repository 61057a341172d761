"""Optimizer steps: how long each took, and where its seconds went."""
