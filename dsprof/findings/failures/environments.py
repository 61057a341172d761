"""What helps against an exception that is of the environment: a package, a library, a driver, or
the way in which the script was started."""

from __future__ import annotations

import re
from typing import Final

from dsprof.findings.finding import Advice

#: Of a package that was found: Python names the first part that is missing.
_PART: Final = re.compile(
    r"ModuleNotFoundError: No module named '(\w+)\.[\w.]+'(; .{1,80} package)?"
)
_NAME: Final = re.compile(
    r"ImportError: cannot import name '\w+' from (partially initialized module )?'(\w+)"
    r"[\w.]{0,200}'(?: \((.{1,400})\))?"
)
_MISSING: Final = re.compile(r"ModuleNotFoundError: No module named '(\w{1,80})'$")
_INSTALLED: Final = re.compile(r"\b(?:site|dist)-packages\b")

#: Of a file that Python takes for a package, because it comes first in its path.
_SHADOW: Final = Advice(
    "files beside the script",
    "",
    "none of the name of a package",
    "Python looks for packages there first: it found such a file, or one that imports itself",
)

#: Of DeepSpeed, which looks for MPI where nothing in the environment tells it its rank.
_LAUNCHER: Final = Advice(
    "launcher",
    "",
    "deepspeed, torchrun or accelerate launch",
    "without one DeepSpeed looks for MPI; mpi4py is of use under mpirun only",
)

#: Of Python itself, before it ran anything.
_MODULE: Final = Advice(
    "python on that host",
    "",
    "that of the environment in which it is installed",
    "a launcher runs the same command on every host, where another Python may be first",
)

_TRANSFORMERS: Final = Advice(
    "transformers", "", "a newer version", "the checkpoint names a class that this one lacks"
)

_NINJA: Final = Advice(
    "PATH on that host",
    "",
    "with ninja in it (pip install ninja)",
    "torch starts it as a program to compile DeepSpeed's operators, on every host",
)

_NO_GPU: Final = Advice(
    "nvidia-smi on that host",
    "",
    "see whether it shows GPUs, in the container too (docker --gpus all)",
    "the job was given none, CUDA_VISIBLE_DEVICES hides them, or the driver does not run",
)

_STARTED: Final = Advice(
    "the command of the job",
    "",
    "a launcher (deepspeed, torchrun, accelerate launch) instead of python",
    "launchers set RANK, LOCAL_RANK, WORLD_SIZE and MASTER_ADDR for each process",
)

_NOT_WHOLE: Final = Advice(
    "the file that was read",
    "",
    "written or downloaded anew",
    "it is not whole: a save or a download that broke off, or a mere pointer of Git LFS",
)

#: What is in an exception's text (a regex) -> what helps.
_BY_TEXT: Final = {
    "the version torch was compiled with": Advice(
        "CUDA_HOME",
        "",
        "a toolkit of torch's CUDA version",
        "DeepSpeed compiles its operators with it",
    ),
    "CUDA_HOME does not exist": Advice(
        "CUDA_HOME", "", "the folder of a CUDA toolkit", "DeepSpeed compiles its operators with it"
    ),
    r"Ninja is required to load C\+\+|No such file or directory: 'ninja'": _NINJA,
    "Unable to JIT load the ": Advice(
        "ds_report on that host",
        "",
        "see what that operator misses",
        "DeepSpeed looks before it compiles: for a library (libaio of async_io), a compiler, CUDA",
    ),
    r"_adam\.so: cannot open shared object file": Advice(
        "TORCH_EXTENSIONS_DIR",
        "",
        "that folder removed, so that it is compiled anew",
        "a build that failed or was ended left it without its library: look for the first error",
    ),
    r"\blib[\w.+-]{1,60}\.so[\w.]{0,20}: cannot open shared object file": Advice(
        "LD_LIBRARY_PATH",
        "",
        "the folder of that library, or packages for the CUDA that is there",
        "the loader does not find it: often one of another version is installed",
    ),
    "undefined symbol: ": Advice(
        "the library that the message names",
        "",
        "built for this torch and its CUDA",
        "it was compiled against another version, which had that symbol, or not linked to the "
        "library that has it",
    ),
    "GLIBCXX_": Advice(
        "LD_LIBRARY_PATH, conda's libstdcxx-ng",
        "",
        "a libstdc++ as new as that of the compiler, before older ones",
        "the extension was compiled for a newer libstdc++ than the one that was loaded",
    ),
    "'numactl'": Advice(
        "--bind_cores_to_rank", "", "left out, or numactl installed", "it needs that program"
    ),
    "finding module specification for|: No module named ": _MODULE,
    "does not recognize this architecture|does not exist or is not currently imported": (
        _TRANSFORMERS
    ),
    "HIP error: no kernel image is available": Advice(
        "torch, PYTORCH_ROCM_ARCH",
        "",
        "built for that GPU",
        "it was compiled for others; for a close relative HSA_OVERRIDE_GFX_VERSION may do",
    ),
    "no kernel image is available": Advice(
        "torch, TORCH_CUDA_ARCH_LIST", "", "built for that GPU", "it was compiled for other GPUs"
    ),
    "invalid device ordinal": Advice(
        "processes per node, CUDA_VISIBLE_DEVICES",
        "",
        "one process for each GPU that is visible",
        "a process chose the number of a GPU that it does not see",
    ),
    "No CUDA GPUs are available|Found no NVIDIA driver on your system": _NO_GPU,
    ": system not yet initialized": Advice(
        "nvidia-fabricmanager on that host",
        "",
        "running, of the driver's version",
        "GPUs behind an NVSwitch can be used only once it has set up their links",
    ),
    "Error 803: ": Advice(
        "LD_LIBRARY_PATH, cuda-compat",
        "",
        "the driver's own libcuda.so first",
        "a libcuda of another version than the kernel's driver was loaded",
    ),
    "devices are busy or unavailable": Advice(
        "nvidia-smi on that host",
        "",
        "see who holds the GPU, and its compute mode",
        "in an exclusive mode one process alone may use it",
    ),
    "doesn't have NCCL built in": Advice(
        "torch", "", "a build for CUDA; or gloo as the backend", "this one was built without NCCL"
    ),
    r"KeyError: '(?:LOCAL_RANK|RANK|WORLD_SIZE|MASTER_ADDR)'"
    r"|environment variable [A-Z_]{1,20} expected, but not set": _STARTED,
    r"invalid load key, '|MetadataIncompleteBuffer|PytorchStreamReader failed": _NOT_WHOLE,
}


def against_environment(text: str) -> tuple[Advice, ...]:
    """What to change around the code; empty where nothing is known to be wrong there."""
    part = _PART.search(text)
    if part:
        return (_SHADOW if part[2] else _version(part[1], "module"),)
    name = _NAME.search(text)
    if name and name[1]:
        return (_SHADOW,)
    if name:  # what a file of the job's own lacks is for its author to write
        return (_version(name[2], "name"),) if _INSTALLED.search(name[3] or "") else ()
    missing = _MISSING.match(text)
    if missing and missing[1] == "mpi4py":
        return (_LAUNCHER,)
    if missing:
        return (Advice(missing[1], "", "installed for the Python that ran", _MODULE.why),)
    return tuple(advice for words, advice in _BY_TEXT.items() if re.search(words, text))[:1]


def _version(package: str, what: str) -> Advice:
    """What was found of a package is not what the code that imports from it was written for."""
    return Advice(
        f"version of {package}",
        "",
        f"one that has that {what}",
        f"{package} was found, but newer or older than the code that imports it expects, or "
        "another folder of that name comes first",
    )
