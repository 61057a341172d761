"""The single pass over a source: from bytes to records and their rows."""
