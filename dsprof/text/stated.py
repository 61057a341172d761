"""What the Trainer's last record says of the whole run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dsprof.events import Kind
from dsprof.text.words import number

if TYPE_CHECKING:
    from dsprof.run import Run

_WHOLE: Final = {
    "train_runtime": "seconds",
    "samples_per_second_mean": "samples_per_second",
    "train_steps_per_second": "steps_per_second",
    "tokens_per_second_mean": "tokens_per_second",
}


@dataclass(frozen=True, slots=True)
class Training:
    """Means over the whole of a training, as its last record states them."""

    seconds: float
    samples_per_second: float | None = None
    steps_per_second: float | None = None
    tokens_per_second: float | None = None


def training(run: Run) -> Training | None:
    """What the Trainer's last record says; of several ranks that print it, the last."""
    events = run.told
    rows = events[events["name"].isin(list(_WHOLE)) & (events["kind"] == Kind.METRIC)]
    ends = rows[(rows["name"] == "train_runtime") & rows["seconds"].notna()]
    if ends.empty:
        return None
    last = ends.iloc[-1]
    rows = rows[(rows["source"] == last["source"]) & (rows["record"] == last["record"])]
    said = {
        field: number(row["seconds"] if field == "seconds" else row["value"])
        for name, field in _WHOLE.items()
        for _, row in rows[rows["name"] == name].tail(1).iterrows()
    }
    return Training(**said)  # type: ignore[arg-type]  # its seconds are not missing
