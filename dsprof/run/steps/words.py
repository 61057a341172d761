"""What the names of timers mean: of which phase they are, over what they sum, of what class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from dsprof.events import Class
from dsprof.grammar import TimerFlavour
from dsprof.run.table import Codes, whole


@dataclass(frozen=True)
class Word:
    """What one timer of one flavour means."""

    name: str
    sums: str
    spelling: int  # 0 the step's own timer, 1 its alias, 2 one micro-batch, 3 that of a loop
    # around the engine, which does not see inside the engine; the lowest wins
    parents: tuple[str, ...]  # nearest first
    class_: str
    overlap: tuple[str, ...]  # phases that also include its self time, innermost first
    dropped: bool
    rough: bool = False  # dropped if the engines inside a turn print timers


def words_of(rows: pd.DataFrame, flavours: Mapping[str, TimerFlavour]) -> tuple[list[Word], Codes]:
    """The distinct timers of `rows`, and for each row the index of its timer."""
    timers, names = rows["timers"].cat.categories, rows["name"].cat.categories
    pair = (whole(rows["timers"]) + 1) * len(names) + whole(rows["name"])
    which, distinct = pd.factorize(pair, sort=True)
    classes = classes_of(flavours)
    words = []
    for code in distinct:
        flavour, name = divmod(int(code), len(names))
        known = flavours.get(str(timers[flavour - 1])) if flavour else None
        words.append(word_of(str(names[name]), known, classes))
    return words, which


def word_of(timer: str, flavour: TimerFlavour | None, classes: Mapping[str, str]) -> Word:
    """What `timer` means. Without a flavour it is per step, with the class that other flavours
    state.
    """
    if flavour is None:
        return Word(timer, "step", 0, (), classes.get(timer, Class.OTHER), (), dropped=False)
    name = flavour.aliases.get(timer, timer)
    path = next((p for p in flavour.tree if own_name(p) == name), "")
    spelling = {"micro": 2, "mean": 3}.get(flavour.sums, int(name != timer))
    return Word(
        name=name,
        sums=flavour.sums,
        spelling=spelling,
        parents=tuple(reversed(path.split("/")[:-1])),
        class_=flavour.tree.get(path) or classes.get(name, Class.OTHER),
        overlap=tuple(reversed(flavour.overlaps.get(name, "").split("/"))),
        dropped=flavour.sums == "once" or timer in flavour.ignore or name in flavour.ignore,
        rough=name in flavour.rough,
    )


def own_name(path: str) -> str:
    """`all_reduce` of `step/backward/all_reduce`."""
    return path.rpartition("/")[2]


def holder_of(path: str) -> str:
    """`step/backward` of `step/backward/all_reduce`; "" of what lies in nothing else."""
    return path.rpartition("/")[0]


def classes_of(flavours: Mapping[str, TimerFlavour]) -> dict[str, str]:
    """Timer name → class, over all flavours."""
    return {
        own_name(path): class_
        for flavour in flavours.values()
        for path, class_ in flavour.tree.items()
    }
