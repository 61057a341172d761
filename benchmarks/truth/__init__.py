"""Is it true? Training jobs with planted faults of known size, and dsprof's verdicts on them.

`cases` is the table, `job` trains, `launch` starts, `score` judges, `page` writes docs/truth.md.
"""
