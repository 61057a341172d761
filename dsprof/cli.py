"""The command line: every command reads, asks one module, and prints.

Standard output is the result. Progress, warnings and errors go to standard error.
Exit codes: 0 fine, 1 the input or environment is at fault, 2 wrong usage, 3 a gate
tripped, 4 cannot tell. Heavy imports stay inside the commands: `--help` is quick.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from typer.main import get_command

from dsprof import __version__
from dsprof.arguments import JsonFile, Link, Parsers, Paths, severity, steps_between
from dsprof.errors import DsprofError
from dsprof.events import Severity
from dsprof.heap import keep_freed
from dsprof.output import discard, prepare, put, refused, spare, tell

if TYPE_CHECKING:
    from dsprof.grammar import Grammar
    from dsprof.logs import Coverage
    from dsprof.run import Run

app = typer.Typer(
    help="Says in one sentence why a DeepSpeed training job is slow, and proves it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help costs no import of rich
    context_settings={"help_option_names": ["-h", "--help"]},
)


_INTERRUPTED: Final = 130  # what shells say of Ctrl-C


class Exit(IntEnum):
    FINE = 0
    INPUT = 1
    USAGE = 2
    GATE = 3
    UNKNOWN = 4


def main() -> None:
    """Run the command; whatever the user can mend is one line on standard error."""
    prepare()
    atexit.register(gc.freeze)  # what is there at the end is not searched for cycles once more
    try:
        _command()()
    except DsprofError as error:
        _fail(str(error))
    except MemoryError:
        _fail("there is not enough memory (name fewer files, or use a larger machine)")
    except OSError as error:  # of help texts, or of the machine
        discard()
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error} (fix that and try again)")
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != _INTERRUPTED:
            raise
        tell("dsprof: interrupted")
        sys.exit(_INTERRUPTED)


def _command() -> Any:
    """The commands; their help says what an argument is, and not of which type in Python."""
    group: Any = get_command(app)
    for command in group.commands.values():
        for one in command.params:
            if one.param_type_name == "argument":
                one.display_type_rich = lambda ctx: ""  # noqa: ARG005
    return group


def _fail(text: str) -> NoReturn:
    from dsprof.text.words import plain

    tell(f"dsprof: {plain(text)}")
    sys.exit(Exit.INPUT)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"dsprof {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def report(
    paths: Paths,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the page: one HTML file."),
    ] = None,
    json_file: JsonFile = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    fail_on: Annotated[
        Severity | None,
        typer.Option(
            metavar="|".join(Severity),
            parser=severity,
            help="Exit with 3 if a finding is at least this severe, 4 if that cannot be told.",
        ),
    ] = None,
    link: Link = None,
    parsers: Parsers = None,
) -> None:
    """Say what holds a job back, with proof."""
    from dsprof.text.document import document
    from dsprof.text.summary import summary
    from dsprof.text.terminal import has_blocks, show

    run = _load(paths, parsers, link)
    if json_file:
        _write_json(json_file, document(run), run)
    if json_file != "-":
        show(summary(run, blocks=has_blocks()))
    if output or open_page:
        _page(run, output, open_page=open_page)
    if fail_on:
        raise typer.Exit(_gate(run, fail_on))


@app.command(context_settings={"allow_interspersed_args": False})
def attach(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND",
            help="What starts the training: deepspeed, torchrun, accelerate, srun, python.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            envvar="DSPROF_OUT",
            help="Run folder for the recordings, one per rank.",
        ),
    ] = Path("dsprof-run"),
    pid: Annotated[
        list[int] | None,
        typer.Option(
            metavar="PID",
            help="Record a job that already trains instead: a rank, or what launched its ranks.",
            show_default=False,
        ),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="End what is recorded of --pid.")] = False,
) -> None:
    """Record every rank of a training command, or of a running job."""
    from dsprof.hook.entering.join import join
    from dsprof.hook.entering.launch import run

    if bool(pid) == bool(command) or (stop and not pid):
        raise typer.BadParameter("name either a command or --pid, and --stop only with --pid")
    if pid:
        raise typer.Exit(0 if join(pid, out, leave=stop) else 1)
    raise typer.Exit(run(command or [], out))


@app.command()
def live(
    paths: Annotated[
        list[str],
        typer.Argument(
            help='Run folders, growing logs, or "-"; waits for what does not exist yet.',
            metavar="PATH",
            show_default=False,
        ),
    ],
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot and exit.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per refresh, or one with --once.")
    ] = False,
    every: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, max=86_400, help="Time between refreshes."),
    ] = 1.0,
    link: Link = None,
    parsers: Parsers = None,
) -> None:
    """Watch a running job: how fast, what holds it back, who is late."""
    from dsprof.live import live as watch

    watch(paths, once=once, as_json=as_json, every=every, link=link, parsers=parsers or ())


@app.command(short_help="List the supported dialects, and lines that none reads.")
def parsers(
    unknown: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Show the shapes of a log's lines that nothing reads."),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Read the samples of your own dialect files back."),
    ] = None,
    folders: Parsers = None,
) -> None:
    """List the supported dialects; show lines that none reads; check your own files."""
    from dsprof import grammar
    from dsprof.text import dialects
    from dsprof.text.terminal import show

    if check:
        mistakes = dialects.mistakes(check)
        show(dialects.verdict(mistakes))
        raise typer.Exit(Exit.INPUT if mistakes else Exit.FINE)
    known = grammar.load(folders or ())
    if unknown:
        show(dialects.unknown(_coverage(unknown, known)))
    else:
        show(dialects.dialects(known))


@app.command()
def compare(
    first: Annotated[str, typer.Argument(help="The run to compare with.", metavar="A")],
    second: Annotated[str, typer.Argument(help="The run to judge.", metavar="B")],
    json_file: JsonFile = None,
    tolerance: Annotated[
        float,
        typer.Option(metavar="PERCENT", min=0, max=100, help="Difference that does not matter."),
    ] = 2,
    parsers: Parsers = None,
) -> None:
    """Say whether B is slower than A. Exit code 3 if it is, 4 if that cannot be told."""
    from dsprof.compare import compare as judge
    from dsprof.text.difference import difference
    from dsprof.text.terminal import show

    runs = [_load([path], parsers) for path in (first, second)]
    _tell_jobs(*runs)
    found = judge(*runs, tolerance=tolerance / 100)
    if json_file:
        _write_json(json_file, found.document(), *runs)
    if json_file != "-":
        show(difference(found))
    raise typer.Exit({"regression": Exit.GATE, "cannot tell": Exit.UNKNOWN}.get(found.answer, 0))


@app.command()
def export(
    paths: Paths,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="*.parquet .csv .json .jsonl; .perfetto.json for ui.perfetto.dev.",
        ),
    ],
    table: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="events, steps, phases, comm, memory, gpu, problems or repairs."
        ),
    ] = "events",
    steps: Annotated[
        str | None, typer.Option(metavar="FIRST:LAST", help="Only these steps, such as 100:120.")
    ] = None,
    parsers: Parsers = None,
) -> None:
    """Write a run's tables for other tools, or a trace for Perfetto."""
    from dsprof.export import export as write

    some = None if steps is None else steps_between(steps)
    run = _load(paths, parsers)
    _tell_jobs(run)
    write(run, output, table, some)


@app.command()
def doctor() -> None:
    """Say what this machine and environment support."""
    from dsprof.doctor import checks
    from dsprof.text.examination import examination
    from dsprof.text.terminal import show

    found = checks()
    show(examination(found))
    raise typer.Exit(Exit.FINE if all(check.fine for check in found) else Exit.INPUT)


def _coverage(paths: list[str], grammar: Grammar) -> Coverage:
    from dsprof.logs import read
    from dsprof.run.nothing import empty, no_log

    log = read(paths, grammar=grammar)
    if not log.coverage.bytes:
        raise empty(paths)
    if not len(log.events) and (binary := no_log(paths)):
        raise binary
    return log.coverage


def _load(paths: list[str], parsers: list[Path] | None, link: str | None = None) -> Run:
    from dsprof.run import load, strings
    from dsprof.text.progress import reading

    keep_freed()
    strings.of_python()
    with reading(_size_of(paths)) as progress:
        return load(paths, parsers=parsers or (), link=link, progress=progress)


def _tell_jobs(*runs: Run) -> None:
    """Whose numbers follow, where the files are of several jobs: a report says so itself."""
    from dsprof.text.words import one_of_jobs, plain

    for run in runs:
        said = one_of_jobs(run.meta)
        if said:
            tell(plain(f"dsprof: {run.meta['sources'][0]}: {said}; the others are left out"))


def _size_of(paths: list[str]) -> int | None:
    """Bytes of the logs among the inputs; None where they are only known when read."""
    from dsprof.logs.sources.source import is_plain, sources_of
    from dsprof.run.inputs import divided

    files = [source.name for source in sources_of(divided(paths)[1])]
    return sum(map(os.path.getsize, files)) if all(map(is_plain, files)) else None


def _gate(run: Run, least: Severity) -> Exit:
    from dsprof.findings.gate import trips, unjudged

    if trips(run, least):
        return Exit.GATE
    why = unjudged(run, least)
    if why is None:
        return Exit.FINE
    tell(f"dsprof: --fail-on {least}: cannot tell: {why} (exit code {Exit.UNKNOWN})")
    return Exit.UNKNOWN


def _page(run: Run, output: Path | None, *, open_page: bool) -> None:
    from dsprof.page import write_page

    if output is None:
        import tempfile

        output = Path(tempfile.mkdtemp(prefix="dsprof-")) / "report.html"
    write_page(run, output)
    tell(f"page: {output}")
    if open_page:
        typer.launch(output.resolve().as_uri())


def _write_json(name: str, content: dict[str, Any], *runs: Run) -> None:
    import json

    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    if name == "-":
        put(text)
        return
    for run in runs:
        spare(name, run.inputs)
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise refused(error, name) from None


if __name__ == "__main__":
    main()
