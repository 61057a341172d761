"""Steps against each other: longer ones, and runs that become slower."""
