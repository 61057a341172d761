"""A fake `libnvidia-ml.so.1`, compiled here and found by the real pynvml under its real name."""

from __future__ import annotations

import atexit
import ctypes
import shutil
import subprocess
from enum import IntEnum
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pynvml
import pytest

SOURCE = Path(__file__).parent / "fake_nvml.c"


class Key(IntEnum):
    """What can be planted, besides fields by their number; as in the C source."""

    USED = 256
    TOTAL = 257
    GPU_RATE = 258
    MEMORY_RATE = 259
    POWER = 260
    TEMPERATURE = 261
    CLOCK_SM = 262
    CLOCK_MEMORY = 263
    REASONS = 264
    OLD_REASONS = 265
    PROCESS = 266
    PROCESS_MEMORY = 267
    MIG_MODE = 268
    MIG_USED_0 = 269
    MIG_USED_1 = 270
    IS_LOST = 271
    FIELDS_LOST = 272


@cache
def folder() -> Path:
    """Where the library lies: for LD_LIBRARY_PATH of other processes."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to build the fake NVML with")
    place = Path(mkdtemp(prefix="dsprof-fake-nvml-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    name = "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", place / name, SOURCE],
        check=True,
    )
    return place


class Fake:
    """A node whose GPUs are planted; what is not planted is not supported."""

    def __init__(self, gpus: int = 1, error: int = 0) -> None:
        # The loader takes what is loaded already for whoever asks by that name.
        self._library = ctypes.CDLL(str(folder() / "libnvidia-ml.so.1"))
        self._library.fake_plant.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_ulonglong]
        self._library.fake_reset(gpus, error)
        self._kept: list[bytes] = []
        pynvml.nvmlLib = None
        pynvml._nvmlGetFunctionPointer_cache.clear()

    def plant(self, gpu: int, values: dict[int, int]) -> None:
        for key, value in values.items():
            self._library.fake_plant(gpu, key, value)

    def model(self, gpu: int, name: str) -> None:
        self._kept.append(name.encode())
        self._library.fake_model(gpu, self._kept[-1])

    def asked(self, key: int) -> int:
        """How often."""
        return int(self._library.fake_asked(key))


#: A GPU that answers everything.
WHOLE: dict[int, int] = {
    Key.USED: 60 << 30,
    Key.TOTAL: 141 << 30,
    Key.GPU_RATE: 97,
    Key.MEMORY_RATE: 41,
    Key.POWER: 655_250,
    Key.TEMPERATURE: 63,
    Key.CLOCK_SM: 1980,
    Key.CLOCK_MEMORY: 3201,
    Key.REASONS: 0,
    Key.PROCESS: 4242,
    Key.PROCESS_MEMORY: 58 << 30,
    3: 0,
    4: 0,
    82: 71,
    138: 1000,
    139: 2000,
    197: 5_000_000,
    198: 7_000_000,
}
