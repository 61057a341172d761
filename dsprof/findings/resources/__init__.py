"""What ranks compute with: memory, GPUs, threads, links."""
