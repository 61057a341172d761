"""Is it true? Training jobs with planted faults of known size, and what is said of them.

`cases` is the table, `job` trains, `launch` starts, `score` judges, `page` writes docs/truth.md.
"""
