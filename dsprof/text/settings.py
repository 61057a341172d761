"""What two runs were configured with differently, value by value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from rich.console import RenderableType
from rich.table import Table

from dsprof.logs.columns.measures import LONGEST_TEXT
from dsprof.run.job.config import IN_JSON
from dsprof.text.layout import QUIET, heading, say
from dsprof.text.words import plain

Settings = dict[str, tuple[Any, Any]]

_STAGES: Final = frozenset({"zero_stage", IN_JSON["zero_stage"]})
_COMMAND: Final = "launch_command"
_MOST: Final = 12
_LONGEST: Final = 24
_SETTING: Final = re.compile(r"(\w+)=([^\s=(){}]+)")
_DUMP: Final = re.compile(rf"{_SETTING.pattern}(?: {_SETTING.pattern})*")
_ABSENT: Final = "not given"
_OPTION: Final = re.compile(r"-+[A-Za-z]")
_TIME: Final = re.compile(r"\d[\d_:.T-]{7,}")  # of a run folder's name
#: Options of launchers that say where a job ran, not what it was.
_WHERE: Final = frozenset(
    f"--{name.replace('_', sign)}"
    for name in (
        "world_info",
        "master_addr",
        "master_port",
        "node_rank",
        "rdzv_endpoint",
        "rdzv_id",
    )
    for sign in "_-"
)


def settings(differing: Settings) -> list[RenderableType]:
    """What both tell differently; [] for nothing. Long values that cannot be taken apart are
    named only."""
    told = _spelled({name: pair for name, pair in differing.items() if None not in pair})
    long = [
        name for name, pair in told.items() if max(len(plain(value)) for value in pair) > _LONGEST
    ]
    short = [name for name in told if name not in long]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(overflow="fold")
    for name in short[:_MOST]:
        before, after = told[name]
        table.add_row(say(name), say(f"{before} → {after}"))
    rest = [*short[_MOST:], *long]
    where = "In --json also" if short else "In --json"
    more = [say(f"{where}: {', '.join(rest)}", QUIET)] if rest else []
    return [heading("Configured differently"), *([table] if short else []), *more] if told else []


def _spelled(told: Settings) -> Settings:
    """Dumps of many settings, and the command, as what differs in them and is not told anyway."""
    told = _each_once(told)
    known = {(word, *map(str, pair)) for name, pair in told.items() for word in _words_for(name)}
    found: Settings = {}
    inner: Settings = {}
    for name, pair in told.items():
        before, after = (_settings_of(str(value)) for value in pair)
        if name == _COMMAND:
            options = _of_commands(*map(str, pair))
            inner |= {k: v for k, v in options.items() if (_word(k), *v) not in known}
        elif before and after:
            apart = _apart(before, after, before.keys() & after.keys())  # others: of a version
            inner |= {f"{name}.{k}": v for k, v in apart.items() if (k, *v) not in known}
        else:
            found[name] = pair
    return found | inner


def _each_once(told: Settings) -> Settings:
    """Without what the job's own JSON says by the key that its users write, and whether ZeRO is on
    where its stage says so."""
    twice = {name for name, key in IN_JSON.items() if key != name and key in told and name in told}
    twice |= {"zero_enabled"} if _STAGES & told.keys() else set()
    return {name: pair for name, pair in told.items() if name not in twice}


def _words_for(name: str) -> set[str]:
    """Last words of its names: options and dumps call the same thing so."""
    return {_word(name), _word(IN_JSON.get(name, name))}


def _word(name: str) -> str:
    return name.rpartition(".")[2].lstrip("-").replace("-", "_")


def _settings_of(dump: str) -> dict[str, str]:
    """What `stage=2 overlap_comm=False` sets; {} if that is not all of it."""
    if len(dump) >= LONGEST_TEXT:
        dump = dump[:LONGEST_TEXT].rpartition(" ")[0]  # the last one is cut
    return dict(_SETTING.findall(dump)) if _DUMP.fullmatch(dump) else {}


def _apart(before: Mapping[str, str], after: Mapping[str, str], names: Iterable[str]) -> Settings:
    pairs = {name: (before.get(name, _ABSENT), after.get(name, _ABSENT)) for name in sorted(names)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _of_commands(before: str, after: str) -> Settings:
    """Options that differ; paths by their last name, without times: folders say nothing."""
    first, second = _options(before), _options(after)
    apart = _apart(first, second, {*first, *second} - _WHERE)
    return {name: pair for name, pair in apart.items() if _timeless(pair[0]) != _timeless(pair[1])}


def _timeless(told: str) -> str:
    return _TIME.sub("", told)


def _options(command: str) -> dict[str, str]:
    """Options of a command and what is behind each; under `command` what is behind none, and
    `script`, which is behind the launcher's last."""
    options: dict[str, list[str]] = {}
    behind = "command"
    for word in command.split():
        name, told, value = word.partition("=")
        if _OPTION.match(word):
            options[name] = [PurePosixPath(value).name] if told else []
            behind = "command" if told else name
        else:
            place = "script" if word.endswith(".py") else behind
            options.setdefault(place, []).append(PurePosixPath(word).name)
    return {name: " ".join(words) or "given" for name, words in options.items()}
