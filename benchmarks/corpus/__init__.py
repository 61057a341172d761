"""Real logs of other people's jobs, held against what is known to stand in them.

The logs are third-party text and no part of the project: `python -m benchmarks.corpus FOLDER`
reads them where they lie. `FOLDER/corpus` holds logs, some with a `NAME.truth.json` that was
taken by narrow searches and by eye; `FOLDER/real-runs` holds logs without one.

    truth ─► kinds, facts ─► checks ─► disputes ─► the table
"""
