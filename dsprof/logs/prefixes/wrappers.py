"""What stands in front of a record: who printed it, where, when.

Launchers, schedulers, container runtimes, loggers and people each put something
in front of a line, in any composition. A *layer* is one of them. A prefix is read
layer by layer from the left; whatever no layer knows (a progress bar, prose) is
skipped up to the next header that can be recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

# A literal first byte lets the search run at the speed of memchr; what never gives back need
# not be remembered.
# Colours; titles of windows and marks of Buildkite end with a bell.
_ESCAPE: Final = re.compile(
    rb"\x1b(?:\[[0-9;?]{0,16}+[A-Za-z]|[()][AB0]|[]_][^\x07\x1b\n]{0,256}+(?:\x07|\x1b\\))"
)
_CARET: Final = re.compile(rb"\^\[(?:\[[0-9;?]{0,16}[A-Za-z]|c)")  # a terminal's echo of the same

_DATE = rb"\d{4}-\d\d-\d\d"
_TIME = rb"\d\d:\d\d:\d\d"
_HOST = rb"(?P<host>[A-Za-z0-9][\w.-]{0,252})"
_SPELT = rb"[A-Z][a-z]{2} [ \d]\d " + _TIME
#: syslog's and journald's: the host, the program and its process; of the kernel, when it booted.
_LOGGED = rb"(?:" + _HOST + rb" (?:[\w./@-]{1,64}\[\d{1,10}\]: |kernel: (?:\[ {0,8}\d+\.\d+\] )?))?"
#: Numbers of lines, clocks and dates are no hosts.
_UNNUMBERED: Final = rb"(?!\d+(?:[:\s]|-\d\d-\d\dT))"
_NO_LEVEL: Final = rb"(?!(?:DEBUG|INFO|SUCCESS|WARN|WARNING|ERROR|CRITICAL)\b)"  # of loguru
# A host before a colon has a digit, a dot or a hyphen in it: "Warning:" is no host.
# Neither is a Python class: "torch.OutOfMemoryError:"; nor what is left of two that ranks printed
# at once: "torch.OutOfMemoryErrortorch:"; nor an error code of Ascend's: "EI0006:", nor a part of
# gcc: "cc1plus:"; nor a file of source code and its line, as where the head of glog's was cut off:
# "ProcessGroupNCCL.cpp:563".
_NAMED = (
    rb"(?=[A-Za-z_]{0,64}[\d.-]|localhost:|master:)"
    rb"(?![\w.]{1,200}(?:\.[A-Z]\w{0,80}|Error[\w.]{0,80}):)"
    rb"(?!E[A-Z\d]\d{4}:|cc1(?:plus)?:)(?![\w.-]{1,100}\.(?:c|cc|cpp|cu|h|hpp|py):\d)" + _UNNUMBERED
)

#: grep -n, which puts a hyphen behind the numbers of lines that only stand around a hit.
_GREP: Final = rb"\d{1,9}(?::(?=[A-Za-z\[{(]|\Z)|-(?=[\[{(]|\Z))"
_GREPPED: Final = re.compile(rb"\d{1,9}[:-]")

#: Layers in the order they are tried. Groups: at, clock (glog, no year), host, rank, world (a
#: rank of the whole job), local, task, stream, where (file:line). `strong` layers are also looked
#: for after unknown text.
_LAYERS: Final[tuple[tuple[bool, bytes], ...]] = (
    # containerd CRI; kubectl logs --timestamps; journalctl -o short-iso
    (
        True,
        rb"(?P<at>" + _DATE + rb"T" + _TIME + rb"(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)) "
        rb"(?:(?P<stream>stdout|stderr) [FP] )?" + _LOGGED,
    ),
    # kubectl logs --prefix
    (True, rb"\[pod/(?P<host>[^/\]\s]{1,253})/[^\]\s]{1,253}\] "),
    # mpirun --tag-output, OpenMPI 5, --timestamp-output; horovodrun
    (
        True,
        rb"(?P<at>[A-Z][a-z]{2} " + _SPELT + rb" \d{4})?"
        rb"\[(?:(?:prterun-[\w.-]{1,200}@)?\d+,)?(?P<rank>\d{1,6})\]"
        rb"<(?P<stream>stdout|stderr|stddiag)>:\s?",
    ),
    # SageMaker's mpirun
    (
        True,
        rb"\[\d+,mpirank:(?P<rank>\d{1,6})," + _HOST + rb"\]"
        rb"(?:<(?P<stream>stdout|stderr)>)?:\s?",
    ),
    # DeepSpeed logger, with or without function; OCR puts a space behind the comma
    (
        True,
        rb"\[(?P<at>" + _DATE + rb" " + _TIME + rb",\s?\d{3})\] ?\[[A-Z]+\] "
        rb"\[(?P<where>[\w.-]{1,64}:\d+)(?::[\w<>]{1,64})?\] ?",
    ),
    # hydra and other loggers that name a module
    (True, rb"\[(?P<at>" + _DATE + rb" " + _TIME + rb",\d{3})\]\[[\w.]{1,128}\]\[[A-Z]+\] - "),
    # AMD's Primus
    (
        True,
        rb"\[(?P<at>\d{8} " + _TIME + rb")\]\[rank-(?P<rank>\d{1,6})/\d{1,6}\]\[[A-Z]+ *\] "
        rb"(?:\[[\w./-]{1,64}:\d+\] ?: ?)?",
    ),
    # DeepSpeed 0.1
    (True, rb"\[[A-Z]+ (?P<at>" + _DATE + rb" " + _TIME + rb")\] "),
    # platform: date time.mmm [LEVEL] ip:
    (
        True,
        rb"(?P<at>" + _DATE + rb" " + _TIME + rb"\.\d{3}) \[[A-Z]+\] "
        rb"(?P<host>\d{1,3}(?:\.\d{1,3}){3}): ",
    ),
    # torchrun of 2.0 to 2.2: a module where others have a host
    (
        True,
        rb"\[(?P<at>" + _DATE + rb" " + _TIME + rb",\d{3})\] torch\.[\w.]{1,120}: \[[A-Z]+\] ",
    ),
    # a bare time stamp in brackets (Megatron-LM, launch scripts, Jenkins)
    (True, rb"\[(?P<at>" + _DATE + rb"[ T]" + _TIME + rb"(?:[.,]\d{1,9})?Z?)\]:? ?"),
    (True, rb"\[NeMo [IWED] (?P<at>" + _DATE + rb" " + _TIME + rb") [\w.:-]{1,128}\] ?"),
    # HF Trainer's logger and accelerate's
    (
        True,
        rb"\[[A-Z]+\|[\w.-]{1,64}:\d+\] "
        rb"(?P<at>" + _DATE + rb" " + _TIME + rb"(?:,\d{3})?) >>\s?",
    ),
    # LLaMA-Factory's
    (True, rb"\[[A-Z]+\|(?P<at>" + _DATE + rb" " + _TIME + rb")\] [\w.]{1,128}:\d+ >> "),
    (True, rb"(?P<at>\d\d/\d\d/\d{4} " + _TIME + rb") - [A-Z]+ - [\w.]{1,128} - "),
    # torch: global rank; glog with and without month padding, with and without a pid
    (True, rb"\[rank(?P<world>\d{1,6})\]:? ?"),
    (
        True,
        rb"\[?[WEIFC](?P<clock>\d{3,4} " + _TIME + rb"\.\d{3,9})(?: +\d+)? "
        rb"(?P<where>[\w./<>-]{1,200}:\d+)\] ?",
    ),
    (True, rb"\[[WEIFC] [\w./-]{1,128}:\d+\] "),
    # torchrun --tee: role and local rank
    (True, rb"\[[a-z_]{1,32}?(?P<local>\d{1,4})\]: ?"),
    # DeepSpeed's own rank words; SwissArmyTransformer's
    (True, rb"\[R(?:ank|ANK) (?P<rank>-?\d{1,6})\] ?"),
    (True, rb"rank[=:](?P<rank>\d{1,6}) (?:\| )?(?:\Z|(?=time \(ms\)|comm op|step=))"),
    # Determined: container and rank, behind a time in brackets
    (False, rb"(?:[0-9a-f]{8} {1,9})?(?:\[rank=(?P<rank>\d{1,6})\] )?\|\| "),
    # Ray's actors and tasks; SkyPilot's nodes, whose rank is none of a process
    (
        False,
        rb"\((?:[\w.:<>/-]{1,80}(?:, rank=\d{1,5})?,? )?pid=\d{1,10}"
        rb"(?:, ip=(?:0\.0\.0\.0|127\.0\.0\.1|" + _HOST + rb"))?\):?(?: |\Z)",
    ),
    # syslog; ts; loggers and collectors that write a time first
    (False, rb"(?:<\d{1,3}>)?(?P<at>" + _SPELT + rb"(?:\.\d{1,6})?) " + _LOGGED),
    (
        False,
        rb"(?P<at>(?:" + _DATE + rb"|\d{4}/\d\d/\d\d)[ T]" + _TIME + rb"(?:[.,]\d{1,9})?"
        rb"(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)(?: [|>-] |: |\t|,\"?| |\Z)",
    ),
    # torchrun of 2.0 to 2.2 where its time stamp was cut off
    (False, rb"torch\.[\w.]{1,120}: \[[A-Z]+\] "),
    # pm2; docker compose; pdsh, clush, ansible; srun --label; collectors
    (False, rb"\d{1,4}\|[\w .-]{1,64}\| "),
    (False, _UNNUMBERED + _NO_LEVEL + _HOST + rb" {1,20}\| "),
    (False, _NAMED + _HOST + rb" >> "),
    (False, rb"(?P<stream>stdout|stderr): ?"),
    # what Slurm's daemon says is of all tasks of its node: srun shows it as if the first one did
    (False, rb" {0,6}(?P<task>\d{1,6}): (?!slurmstepd: )"),
    (False, _GREP),
    (False, _HOST + rb":\d+:\d+ \[\d+\] "),  # NCCL: host:pid:thread [device]
    (False, rb"slurmstepd-" + _HOST + rb": "),  # Slurm's daemon, where it names its node
    (False, _NAMED + _HOST + rb":(?! line \d{1,6}: ) ?"),  # not a shell's script and its line
    # quoted mail, editor line numbers, numbered dumps, cat -n and nl, indentation
    (False, rb"[>\s]{1,400}"),
    (False, rb"\[\d{1,9}\] "),
    (False, rb"\d{1,9}(?: (?=[\[{])|\t)"),
)

#: What no layer knows: names (with the number that tells one from others), numbers, blanks.
_WORDS: Final = re.compile(
    rb"(?<!\d)[A-Za-z_][\w.=-]*(?:[\[ /]\d+)?|\d+(?:\.\d+){3}|\d+|\s+|.", re.DOTALL
)
_LONGEST_UNKNOWN: Final = 200
_BLANK: Final = 3  # layers at the end of the list that name nobody


def _either(layers: Iterable[bytes]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(re.sub(rb"\?P<\w+>", b"?:", layer) for layer in layers))


_COMPILED: Final = tuple(re.compile(layer) for _, layer in _LAYERS)
_ANY: Final = _either(layer for _, layer in _LAYERS)
_NAMING: Final = frozenset(_COMPILED[:-_BLANK])
_HEADER: Final = _either(layer for strong, layer in _LAYERS if strong)
#: A mark of a header, and how far behind the header's first byte it may stand. Digits are
#: what numbers are full of; beginning with the mark makes the search four times faster.
_MARK: Final = re.compile(
    rb"\[|-(?<=\d{4}-)\d\d-\d\d|/(?<=\d\d/)\d\d/\d{4} "
    rb"|:(?:(?<=[WEIFC]\d{3} \d\d:)|(?<=[WEIFC]\d{4} \d\d:))"
)
_BEHIND: Final = {b"[": (0,), b"-": (4,), b"/": (2,), b":": (8, 7)}
LONGEST: Final = 600  # a longer prefix is prose or a bar: only its end can hold headers

Span = tuple[int, int]


@dataclass(frozen=True)
class Plan:
    """Where in a prefix of one shape each fact stands; None where it is not there.

    Of several dates `at` is the outermost and `own` the innermost, which the logger wrote itself.
    """

    at: Span | None = None
    own: Span | None = None
    clock: Span | None = None
    host: Span | None = None
    task: Span | None = None
    rank: Span | None = None  # as the process says, which may count within a group of them
    world: Span | None = None  # among all processes of the job
    local: Span | None = None
    where: Span | None = None
    end: int = 0  # how far the layers reach

    @property
    def whose(self) -> Span | None:
        """Where the rank of the process stands."""
        return self.world or self.rank

    @cached_property
    def names(self) -> tuple[bytes, list[Span]]:
        """Which of the facts that name a process are there, and where they stand."""
        spans = {"rank": self.whose, "local": self.local, "host": self.host, "task": self.task}
        told = {name: span for name, span in spans.items() if span is not None}
        return b"%s " % " ".join(told).encode(), list(told.values())


def study(prefix: bytes, *, whole: bool = True) -> Plan:
    """Reads a prefix layer by layer.

    Args:
        prefix: the bytes before a record, or a whole line.
        whole: keep looking for headers after text that no layer knows; False stops
            there, so that `Plan.end` is where the line's own text begins.
    """
    found: dict[str, Span] = {}
    position = 0
    for match in _layers_in(prefix, whole=whole):
        _take(match, found)
        position = match.end()
    return Plan(end=position, **found)


def _layers_in(prefix: bytes, *, whole: bool) -> Iterator[re.Match[bytes]]:
    """The layers of a prefix, from the left."""
    position, end = 0, len(prefix)
    while position < end:
        match = _ANY.match(prefix, position)
        if match is None or match.end() == position:
            position = header_start(prefix, position, end) if whole else end
            continue
        told = (layer.match(prefix, position) for layer in _COMPILED)
        layer = next(match for match in told if match and match.end() > position)
        yield layer
        position = layer.end()


def _take(match: re.Match[bytes], found: dict[str, Span]) -> None:
    for name in match.re.groupindex:
        span = match.span(name)
        if span[0] < 0 or name == "stream":
            continue
        # The outermost clock, host and task count; the innermost ranks and header.
        if name in ("rank", "world", "where", "local") or name not in found:
            found[name] = span
        elif name == "at":
            found["own"] = span


@dataclass(frozen=True)
class Wrapping:
    """What a block's opening line has in front of its text, so that its other lines may too.

    Attributes:
        layers: from the left, those that name who printed it, and what stands around them.
    """

    layers: tuple[re.Pattern[bytes], ...]

    @classmethod
    def of(cls, prefix: bytes) -> Wrapping:
        prefix = prefix[:LONGEST]
        layers: list[re.Pattern[bytes]] = []
        position = 0
        for match in _layers_in(prefix, whole=True):
            # A number stands there before blanks too, which alone would make it a task.
            if match.re in _NAMING:
                layers += _as_printed(prefix[position : match.start()])
                layers.append(_GREPPED if match.re.pattern == _GREP else match.re)
                position = match.end()
        return cls((*layers, *_as_printed(prefix[position:])))

    def read(self, line: bytes) -> Plan:
        """The plan of what the line has of this wrapping.

        What only looks like a layer, as `broadcast | ` like a host, is the line's own text.
        """
        found: dict[str, Span] = {}
        position = 0
        for layer in self.layers:
            match = layer.match(line, position)
            if match is not None:
                _take(match, found)
                position = match.end()
        return Plan(end=position, **found)


def _as_printed(text: bytes) -> list[re.Pattern[bytes]]:
    """What no layer names, as other lines have it: quotes, indentation, line numbers, what a
    collector puts there. It counts and tells the time, so numbers differ, and their padding;
    names do not. Blanks at the end may be lost where nothing follows them.
    """
    inner = text.rstrip()
    if not 0 < len(text) <= _LONGEST_UNKNOWN or text.isdigit():  # which may be the lines' own
        return []
    blanks = len(text) - len(inner)
    shape = b"".join(map(_any_number, _WORDS.findall(inner.lstrip())))
    padding = rb"\s{0,40}" if inner else b""
    return [re.compile(rb"%s%s(?:\s{%d}|\s{0,%d}$)" % (padding, shape, blanks, blanks))]


def _any_number(word: bytes) -> bytes:
    if word.isspace():
        return rb"\s{1,40}"
    return rb"\d{1,19}+" if word.isdigit() else re.escape(word)


def without_colours(text: bytes) -> bytes:
    """The text without terminal escape sequences, and without NULs.

    A file system that lost power fills what was not written yet with NULs.
    """
    if b"\0" in text:
        text = text.replace(b"\0", b"")
    if b"\x1b" in text:
        text = b"".join(_ESCAPE.split(text))  # a third quicker than `sub`
    # Looking for one byte first is many times faster than looking for both.
    return _CARET.sub(b"", text) if b"^" in text and b"^[" in text else text


def header_start(text: bytes, start: int, end: int) -> int:
    """Where the first header between `start` and `end` begins; `end` if there is none."""
    for mark in _MARK.finditer(text, start, end):
        for behind in _BEHIND[mark[0][:1]]:
            begin = mark.start() - behind
            if begin >= start and _HEADER.match(text, begin, end):
                return begin
    return end
