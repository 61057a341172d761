"""What is recorded in addition where a process computes on a GPU."""
