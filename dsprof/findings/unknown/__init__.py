"""What a source does not say: steps nobody timed, time nobody divided; and how to get it told."""
