"""What this machine and environment allow: what is there, and what a lack of it means."""

from __future__ import annotations

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import dsprof
from dsprof import gpu, grammar
from dsprof.errors import DsprofError


class Check(NamedTuple):
    """One thing looked at; `fine` is False only where dsprof cannot do its work."""

    name: str
    fine: bool
    told: str


def checks() -> list[Check]:
    """Everything looked at; quick, and without importing what is looked for."""
    return [
        Check("dsprof", True, f"{dsprof.__version__}, Python {platform.python_version()}"),
        _dialects(),
        _package("hyperscan", "finds all needles in one pass", "reading is slower"),
        _package("isal", "unpacks .gz quickly", ".gz is unpacked by zlib, slower"),
        _package("zstandard", "unpacks .zst", ".zst cannot be read"),
        _package("fsspec", "reads URLs", "URLs cannot be read: pip install 'dsprof[remote]'"),
        _recording(),
        _joining(),
        _gpus(),
        Check("cores", True, f"{os.cpu_count() or 1} to read large files with"),
    ]


def _recording() -> Check:
    """Training has an environment of its own; what it must have of ours is to be found there."""
    home = Path(dsprof.__file__).absolute().parent
    told = f"of Python 3.9 or later in any environment, on hosts that have {home}"
    return Check("recording", True, told)


def _joining() -> Check:
    """What `attach --pid` needs before Python 3.14."""
    if shutil.which("gdb") is None:
        return Check("attach --pid", True, "needs gdb here, or Python 3.14 in the job")
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text(encoding="ascii").strip()
    except OSError:
        scope = "0"
    own = "" if scope == "0" or os.geteuid() == 0 else f" as root (ptrace_scope is {scope})"
    return Check("attach --pid", True, f"joins running jobs{own}, by gdb")


def _gpus() -> Check:
    """What a recording on this machine could sample."""
    try:
        models = [board.model for board in gpu.boards()]
    except DsprofError as error:
        return Check("GPUs", True, f"no counters in recordings: {error}")
    names = ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models))
    return Check("GPUs", True, f"{names}, counters in recordings" if names else "none")


def _dialects() -> Check:
    own = grammar.user_folder()
    try:
        known = grammar.load()
    except DsprofError as error:
        return Check("dialects", False, str(error))
    files = len(list(own.glob("*.toml"))) if own.is_dir() else 0
    all_of_them = f"{len(known.titles)} files, {len(known.patterns)} patterns"
    told = f"{all_of_them}; {files or 'none'} of your own in {own}"
    return Check("dialects", bool(known.patterns), told)


def _package(name: str, use: str, lack: str) -> Check:
    try:
        return Check(name, True, f"{version(name)}, {use}")
    except PackageNotFoundError:
        return Check(name, True, f"not installed: {lack}")
