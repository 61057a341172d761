"""The records of all sources as one table."""
