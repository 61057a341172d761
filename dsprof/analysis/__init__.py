"""Pure functions that derive numbers and tables from the views of a run."""
