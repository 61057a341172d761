"""A run to one file of HTML."""

from __future__ import annotations

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

import dsprof
from dsprof.charts import LABEL, PALETTE, PATTERN, SHORT
from dsprof.charts.figure import visible
from dsprof.output import refused, spare
from dsprof.page import words
from dsprof.page.contents import Contents, contents
from dsprof.page.pack import pack_json, pack_text, safe_json

if TYPE_CHECKING:
    from dsprof.run import Run

#: Beside the package in a checkout, inside it when installed.
_FOLDERS: Final = (Path(__file__).parents[1] / "reports", Path(__file__).parents[2] / "reports")
_SCRIPTS: Final = (
    "data.js",
    "format.js",
    "plots.js",
    "timeline.js",
    "step.js",
    "drawer.js",
    "page.js",
)


def write_page(run: Run, path: str | Path) -> None:
    """Write the page of a run.

    Raises:
        DsprofError: the file cannot be written, or is what the run was read from.
    """
    spare(path, run.inputs)
    page = render_page(run)
    try:
        Path(path).write_text(page, encoding="utf-8", errors="replace")  # names of files are bytes
    except OSError as error:
        raise refused(error, str(path)) from None


def render_page(run: Run) -> str:
    """The page of a run, as HTML."""
    with ThreadPoolExecutor(1) as beside:  # packing holds no lock of Python's
        packed = beside.submit(_plotly)
        page = contents(run)
    templates = _templates()
    script = "\n".join(_read(name) for name in _SCRIPTS)
    style = templates.get_template("page.css").render(palette=PALETTE, patterns=PATTERN)
    library, library_hash = packed.result()
    return templates.get_template("page.html").render(
        page=page,
        policy=_policy([_hash(script), library_hash], [_hash(style), _hash("")]),
        script=Markup(script),  # noqa: S704  our own file
        style=Markup(style),  # noqa: S704
        library=library,
        theme=Markup(safe_json(_theme())),  # noqa: S704  escaped for its place
        data=pack_json(_data(page)),
        version=dsprof.__version__,
        short=words.CONTENTS,
        labels=LABEL,
    )


def _theme() -> dict[str, Any]:
    return {"palette": PALETTE, "labels": LABEL, "short": SHORT}


def _data(page: Contents) -> dict[str, Any]:
    return {
        "figures": {chart.name: chart.figure for s in page.sections for chart in s.charts},
        "tracks": {
            name: {key: value for key, value in track.items() if key != "data"}  # in the template
            for name, track in page.tracks.items()
        },
        "sources": page.sources,
        "lines": {page.sources.index(s): lines for s, lines in page.lines.items()},
        "windows": {page.sources.index(s): steps for s, steps in page.windows.items()},
    }


def _policy(scripts: list[str], styles: list[str]) -> str:
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(scripts)}",
            f"style-src {' '.join(styles)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


@cache
def _plotly() -> tuple[str, str]:
    """plotly.js as packed text, and the hash a policy allows it by."""
    from plotly.offline import get_plotlyjs

    code = get_plotlyjs()
    return pack_text(code, level=9), _hash(code)


def _folder() -> Path:
    return next(folder for folder in _FOLDERS if (folder / "page.html").exists())


def _read(name: str) -> str:
    return (_folder() / name).read_text(encoding="utf-8")


def _readable(value: Any) -> Any:
    """Every word the template prints, where it is not markup of its own."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _templates() -> Environment:
    """One for all pages of a process: it compiles each template once."""
    return Environment(
        loader=FileSystemLoader(_folder()),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        finalize=_readable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
