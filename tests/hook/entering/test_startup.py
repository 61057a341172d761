"""The startup file, as Pythons of other environments come upon it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

import dsprof
from dsprof.hook.entering.launch import prepare
from tests.hook.jobs_of import interpreter
from tests.hook.pythons import python
from tests.test_walls import ROOT

NEW = ("3.9", "3.10", "3.13")
OLD = ("2.7", "3.6", "3.8")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dsprof that is installed, with a package beside it; `prepare` is of that one."""
    packages = tmp_path / "tool" / "site-packages"
    spare = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "dsprof", packages / "dsprof", ignore=spare)
    (packages / "beside.py").touch()
    monkeypatch.setattr(dsprof, "__file__", str(packages / "dsprof" / "__init__.py"))
    return packages / "dsprof"


def modules(folder: Path, **texts: str) -> Path:
    """A folder with modules of these names, `torch` among them unless it is named."""
    folder.mkdir(exist_ok=True)
    for name, text in ({"torch": ""} | texts).items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def run(interpreter: str, code: str, out: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    """`code` as a rank under `dsprof attach` has it, in an environment that has `paths`."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    given = kept | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [interpreter, "-c", code]
    environment = prepare(out / "run", given, "one")
    return subprocess.run(
        command, env=environment, cwd=out, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("version", NEW)
def test_a_process_of_any_environment_has_this_dsprof_and_nothing_that_is_installed_beside_it(
    installed: Path, version: str, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "dsprof").mkdir(parents=True)
    (theirs / "dsprof" / "__init__.py").write_text("raise ImportError('another version')")
    code = """
import importlib.util, sys
import dsprof
print(dsprof.__file__)
print(importlib.util.find_spec("beside"))
from dsprof.hook import Handle
print(type(dsprof.attach()) is Handle)
"""
    done = run(python(version), code, tmp_path, theirs)
    assert (done.stdout.split(), done.stderr) == (
        [str(installed / "__init__.py"), "None", "True"],
        "",
    )


def test_dsprof_can_be_loaded_anew(installed: Path, tmp_path: Path) -> None:
    """As notebooks and whoever empties `sys.modules` do."""
    code = """
import importlib, sys
import dsprof
print(importlib.reload(dsprof).__file__)
for name in [name for name in sys.modules if name.partition(".")[0] == "dsprof"]:
    del sys.modules[name]
import dsprof
print(dsprof.__file__)
"""
    done = run(sys.executable, code, tmp_path)
    assert (done.stdout.split(), done.stderr) == ([str(installed / "__init__.py")] * 2, "")


@pytest.mark.parametrize("there", [True, False])
def test_counters_of_gpus_are_read_by_what_is_installed_beside_dsprof_which_training_does_not_see(
    there: bool, installed: Path, tmp_path: Path
) -> None:
    """There is no driver here: that is what NVML's own module says."""
    if there:
        shutil.copy(pynvml.__file__, installed.parent)
    code = """
from dsprof.gpu import boards
for turn in range(2):
    try:
        print(len(boards()))
    except Exception as error:
        print(error)
import pynvml
"""
    none = modules(tmp_path / "theirs", pynvml="raise ImportError('none here')")
    done = run(python("3.9"), code, tmp_path, none)
    lacking = "NVML: pynvml is not installed (pip install nvidia-ml-py)"
    said = done.stdout.splitlines()
    assert len(said) == 2
    assert (said == [lacking] * 2) is not there
    assert done.stderr.endswith("ImportError: none here\n")


_SPAWNING = """
import multiprocessing, sys
def told():
    import dsprof
    print(dsprof.__file__, "dsprof.imports" in sys.modules, flush=True)
if __name__ == "__main__":
    for way in ("spawn", "fork", "forkserver"):
        process = multiprocessing.get_context(way).Process(target=told)
        process.start()
        process.join()
"""


def test_processes_that_one_starts_have_it_too(installed: Path, tmp_path: Path) -> None:
    modules(tmp_path, job=_SPAWNING)
    code = "import subprocess, sys; subprocess.run([sys.executable, 'job.py'])"
    done = run(sys.executable, code, tmp_path)
    assert (done.stdout.splitlines(), done.stderr) == (
        [f"{installed / '__init__.py'} True"] * 3,
        "",
    )


def test_a_process_that_empties_its_environment_is_recorded_in_the_same_folder(
    tmp_path: Path,
) -> None:
    code = """
import os
os.environ.clear()
import torch
import dsprof
print(dsprof.attach().out)
"""
    done = run(interpreter("torch"), code, tmp_path)
    assert (done.stdout, done.stderr) == (f"{tmp_path / 'run'}\n", "")


@pytest.mark.parametrize("version", OLD)
def test_a_python_that_is_too_old_says_so_where_it_trains_and_goes_on(
    version: str, tmp_path: Path
) -> None:
    there = modules(tmp_path / "theirs", torch="print('trained')")
    done = run(python(version), "import torch", tmp_path, there)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    said = "dsprof: nothing is recorded: Python 3.9 or later is needed, this is "
    assert done.stderr.startswith(said + version)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("version", OLD)
def test_of_other_programs_that_run_an_old_python_nothing_is_said(
    version: str, tmp_path: Path
) -> None:
    done = run(python(version), "print('done')", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_host_that_does_not_have_this_dsprof_says_so_where_it_trains_and_goes_on(
    installed: Path, tmp_path: Path
) -> None:
    """As where the run folder is shared, and what is installed is not."""
    none = "raise ModuleNotFoundError(\"No module named 'dsprof'\")"
    there = modules(tmp_path / "theirs", dsprof=none)
    shutil.rmtree(installed)
    done = run(sys.executable, "print('trained')\nimport torch", tmp_path, there)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr == (
        "dsprof: nothing is recorded: No module named 'dsprof' "
        f"(dsprof attach ran from {installed}, which cannot be read here)\n"
    )
    done = run(sys.executable, "print('no training')", tmp_path, there)
    assert (done.stdout, done.stderr) == ("no training\n", "")


def test_a_host_that_has_one_of_its_own_elsewhere_uses_that(
    installed: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    installed.rename(elsewhere / "dsprof")
    done = run(sys.executable, "import dsprof; print(dsprof.__file__)", tmp_path, elsewhere)
    assert (done.stdout, done.stderr) == (f"{elsewhere / 'dsprof' / '__init__.py'}\n", "")


@pytest.mark.parametrize("version", [*OLD, *NEW])
def test_the_users_own_startup_file_runs_as_ever(version: str, tmp_path: Path) -> None:
    there = modules(tmp_path / "theirs", sitecustomize="given = 'theirs'")
    done = run(python(version), "import sitecustomize as s; print(s.given)", tmp_path, there)
    assert (done.stdout, done.stderr) == ("theirs\n", "")


@pytest.mark.parametrize("broken", ["raise ValueError('theirs')", "import no_such_module"])
def test_the_users_own_startup_file_fails_as_ever(broken: str, tmp_path: Path) -> None:
    there = modules(tmp_path / "theirs", sitecustomize=broken)
    code = "import sys; print('dsprof.imports' in sys.modules)"
    done = run(sys.executable, code, tmp_path, there)
    bare = subprocess.run(
        [sys.executable, "-c", "print(False)"], env={"PYTHONPATH": str(there)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("True\n", bare.stderr)
    assert bare.stderr
