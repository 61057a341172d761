"""Real logs of other people's jobs, compared with what is known to be in them.

The logs are third-party text and not part of the project: `python -m benchmarks.corpus FOLDER`
reads them in place. `FOLDER/corpus` holds logs, some with a `NAME.truth.json` that was established
by narrow searches and by eye; `FOLDER/real-runs` holds logs without one.

    truth ─► kinds, facts ─► checks ─► disputes ─► the table
"""
