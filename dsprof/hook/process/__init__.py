"""What is recorded of a process, whatever it trains: memory, CPU, work between steps."""
