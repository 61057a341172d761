"""Which code a thread runs, seen from another thread."""
