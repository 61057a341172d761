"""What is trained: losses that are no numbers, rise or stand still, and steps that are skipped."""
