"""To which job, launch, engine, step and rank each record belongs."""
