"""Derived tables: pure functions from a run's views to numbers and frames."""
