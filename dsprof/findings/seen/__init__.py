"""What recordings saw that no phase tells: code, gaps, what is made anew, calls nobody saw."""
