"""Known defects of sources: pure functions of events, which repair numbers or doubt them."""
