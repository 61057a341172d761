"""The wheel holds all that is needed: installed elsewhere it reads every sample and reports."""

from __future__ import annotations

import shutil
import site
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT, SAMPLES

pytest.importorskip("hatchling", reason="builds the wheel: pip install hatchling")


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what is in the project, without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("dsprof", "parsers", "reports"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, "--no-index", "--wheel-dir", folder, source, cwd=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment that has the wheel, and borrows the other packages of this one."""
    folder = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    found = folder / "bin" / "python"
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(found, "-c", purelib, cwd=folder).strip())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # A plain path: what a .pth over there would add (an editable dsprof) does not come along.
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return found


def test_the_wheel_brings_the_dialects_and_the_page(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    names = set(archive.namelist())
    for folder in ("parsers", "reports"):
        for file in filter(Path.is_file, (ROOT / folder).rglob("*.*")):
            name = f"dsprof/{file.relative_to(ROOT)}"
            assert name in names
            assert archive.read(name) == file.read_bytes(), name
    assert {name.split("/")[0] for name in names if not name.split("/")[0].endswith("info")} == {
        "dsprof"
    }


def test_installed_it_is_the_installed_one_that_runs(python: Path, tmp_path: Path) -> None:
    where = run(python, "-c", "import dsprof; print(dsprof.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(python.parent.parent)


def test_installed_it_has_every_dialect_and_reads_a_sample_of_each_from_another_folder(
    python: Path, tmp_path: Path
) -> None:
    """What each sample says is the same as here (`tests.parsers`)."""
    code = (
        "from dsprof import grammar; from dsprof.logs.samples import faults, read_sample\n"
        "known = grammar.builtin(); print(len(known.samples))\n"
        "one_of_each = {s.file: s for s in known.samples}.values()\n"
        "wrong = [f for s in one_of_each for f in faults(s, read_sample(s, known))]\n"
        "assert not wrong, wrong\n"
    )
    written = sum(f.read_text().count("[[sample]]") for f in (ROOT / "parsers").glob("*.toml"))
    assert int(run(python, "-c", code, cwd=tmp_path)) == written > 0


def test_installed_it_reports_with_a_page_from_another_folder(python: Path, tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "neox_pipeline_2023.log", tmp_path / "run.log")
    out = run(python, "-m", "dsprof", "report", "run.log", "-o", "run.html", cwd=tmp_path)
    assert out.startswith("76 % of a step")
    assert (tmp_path / "run.html").stat().st_size > 10_000


def test_installed_it_has_its_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        entry = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "dsprof = dsprof.cli:main" in archive.read(entry).decode()


def test_the_source_distribution_holds_all_that_its_tests_and_commands_need(tmp_path: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=ROOT)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as packed:
        names = {name.split("/")[1] for name in packed.getnames()}
    folders = "benchmarks docs dsprof examples parsers reports sample_logs tests"
    assert {*folders.split(), "Makefile", "README.md", "LICENSE", "pyproject.toml"} <= names
