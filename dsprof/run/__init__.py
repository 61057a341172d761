"""One job: what its logs and recordings say, and the views of it that everything else reads."""

from dsprof.run.loading import from_events, load
from dsprof.run.run import Run

__all__ = ["Run", "from_events", "load"]
