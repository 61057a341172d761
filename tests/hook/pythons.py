"""Other Pythons of this machine: training has its own, and seldom the newest."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest


@cache
def python(version: str) -> str:
    """An interpreter of that version, on PATH or pyenv's; without one the test is skipped."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    named = [shutil.which(f"python{version}"), *root.glob(f"versions/{version}.*/bin/python")]
    for one in map(str, filter(None, named)):  # a name on PATH may be pyenv's, of one not chosen
        if subprocess.run([one, "-c", ""], capture_output=True, check=False).returncode == 0:
            return one
    pytest.skip(f"no Python {version} here")
