"""What a job does beside its steps: saves, evaluations, generation, a script's own work."""
