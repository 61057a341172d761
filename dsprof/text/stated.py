"""What a source says of the whole run, beside its steps: the Trainer's summary, the last bar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dsprof.events import Kind
from dsprof.run.bars import evaluations_told, steps_meant
from dsprof.text.words import number

if TYPE_CHECKING:
    from dsprof.run import Run

_WHOLE: Final = {
    "train_runtime": "seconds",
    "samples_per_second_mean": "samples_per_second",
    "train_steps_per_second": "steps_per_second",
    "tokens_per_second_mean": "tokens_per_second",
}
_BAR: Final = ("bar_position", "bar_total", "bar_elapsed")
_BESIDE: Final = {"bar_loss": "loss", "bar_reward": "reward"}  # what its loop writes beside it
_RATE: Final = ("step_seconds", "steps_per_second")  # as a bar states it: slow, or fast
_SLOWEST: Final = 0.1  # of rates with two decimals: of a slower one (Lightning's) they tell little


@dataclass(frozen=True, slots=True)
class Training:
    """Means over the whole of a training, as its last record states them."""

    seconds: float
    samples_per_second: float | None = None
    steps_per_second: float | None = None
    tokens_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """The last progress bar: a turn of its loop may be an optimizer step or anything else, unless
    it is as long as the job says it means to train."""

    position: int
    total: int | None  # None of a bar whose end its loop does not know
    seconds: float  # elapsed, what came before the first turn included
    lately: float | None = None  # seconds of a turn, as it states of the last ones
    counts_steps: bool = False
    loss: float | None = None  # as its loop writes beside it, of the last turn or the next
    reward: float | None = None


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


def bar(run: Run) -> Bar | None:
    """The last bar of a source that tells of no step how long all of it took: timers leave out
    what nobody timed. The longest one, where several have one. Beside evaluations that the Trainer
    tells of, one of another length than its training is an evaluation's."""
    if run.steps["whole_seconds"].notna().any():
        return None
    events = run.told
    rows = events[events["name"].isin([*_BAR, *_RATE, *_BESIDE])]
    rows = rows.drop_duplicates(["source", "record", "name"])
    said = rows.assign(said=rows["value"].fillna(rows["seconds"]))
    table = said.pivot(index=["source", "record"], columns="name", values="said")
    table = table.reindex(columns=[*_BAR, *_RATE, *_BESIDE]).dropna(
        subset=["bar_position", "bar_elapsed"]
    )
    moved = table.query("bar_position > 0 and bar_elapsed > 0")
    meant = steps_meant(events)
    if meant and len(evaluations_told(events)):
        moved = moved[moved["bar_total"].isin(meant)]
    if moved.empty:
        return None
    longest = moved[moved["bar_elapsed"] == moved["bar_elapsed"].max()]
    rated = longest[longest[list(_RATE)].notna().any(axis=1)]
    last = (rated if len(rated) else longest).iloc[0]  # one bar may be read twice, once without it
    position, total, seconds, slow, fast = last[[*_BAR, *_RATE]]
    lately, counts = number(slow) or _inverse(fast), total in meant
    beside = {field: number(last[name]) for name, field in _BESIDE.items()}
    of = None if number(total) is None else int(total)
    return Bar(int(position), of, float(seconds), lately, counts_steps=counts, **beside)


def _inverse(rate: float) -> float | None:
    return 1 / rate if rate >= _SLOWEST else None
