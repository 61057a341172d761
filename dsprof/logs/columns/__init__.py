"""Text to numbers, times and words: of many lines at once, as columns."""
