"""GPU counters of the node, sampled by one of its ranks for all GPUs.

Every rank has a sleeping thread; the rank that holds the node's lock samples. When its process
dies, for whatever reason, the kernel releases the lock, and another rank takes over.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns as now
from typing import Final

from dsprof import gpu
from dsprof.errors import DsprofError
from dsprof.hook.guard import Guard
from dsprof.recording import Unit, Writer

EVERY: Final = 2.0  # seconds between two samples
PATIENCE: Final = 0.5  # seconds that the end of training waits for a driver that hangs
UNFLUSHED: Final = 1_000_000_000  # ns after which samples are flushed even if no step ends

_BYTES: Final = ("memory_used", "memory_total", "memory_process")
_COUNTS: Final = ("ecc_corrected", "ecc_uncorrected")
UNITS: Final = dict.fromkeys(_BYTES, Unit.BYTES) | dict.fromkeys(_COUNTS, Unit.COUNT)


class Turn:
    """The right to sample for this node and run folder, held by at most one process.

    It is a POSIX record lock, which forks do not inherit: a data loader's worker that outlives its
    rank holds nothing. Its file is in the node's own temporary folder, because a lock on a shared
    file system would be one lock for all nodes.
    """

    def __init__(self, folder: Path) -> None:
        mark = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:16]
        self._path = Path(tempfile.gettempdir()) / f"dsprof-gpu-{os.getuid()}-{mark}"
        self._fd = -1

    def taken(self) -> bool:
        """Whether this process holds the lock now; takes it if it is free.

        Raises:
            OSError: the lock file cannot be created.
        """
        if self._holds(self._fd):
            return True
        self._fd = -1
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._holds(fd):
                self._fd = fd
        except (BlockingIOError, PermissionError):
            pass  # held by another process
        finally:
            if self._fd < 0:
                os.close(fd)
        return self._fd >= 0

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if self._holds(fd):
            self._path.unlink(missing_ok=True)
            os.close(fd)

    def _holds(self, fd: int) -> bool:
        """Whether `fd` still is the lock file.

        Another rank may have removed the file. Training may have closed all descriptors, which
        releases the lock, and opened another file under the same number.
        """
        try:
            return fd >= 0 and os.path.samestat(os.stat(self._path), os.fstat(fd))  # noqa: PTH116
        except OSError:
            return False


class Sampler:
    """A daemon thread that writes GPU rows while this rank holds the lock."""

    def __init__(
        self,
        writer: Writer,
        folder: Path,
        step: Callable[[], int],
        *,
        unnamed: int | None = None,
        every: float = EVERY,
    ) -> None:
        """`unnamed` is CUDA's device index of this rank's GPU if its UUID must be looked up."""
        self._writer, self._step, self._every = writer, step, every
        self._turn, self._unnamed = Turn(folder), unnamed
        self._boards: list[gpu.Board] | None = None
        self._stopping = threading.Event()
        guard = Guard("sampling GPUs")
        guard.on_failure = self._note
        self._thread = threading.Thread(target=guard(self._loop), name="dsprof-gpu", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling. No row is written after this, unless the driver hangs."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE)
        self._turn.release()

    def _loop(self) -> None:
        """If the driver provides nothing, note why in the recording; training is not affected."""
        try:
            self._name()
            while not self._stopping.is_set():
                if self._turn.taken():
                    self._sample()
                self._stopping.wait(self._every)
        except (DsprofError, OSError) as error:
            self._note(str(error))

    def _note(self, text: str) -> None:
        self._writer.config("gpu_counters", f"none: {text}")

    def _name(self) -> None:
        """Record which GPU this rank uses, if torch could not tell."""
        if self._unnamed is None:
            return
        order = gpu.visible(os.environ, gpu.boards()) or []
        if self._unnamed < len(order):
            self._writer.config("gpu", order[self._unnamed])

    def _sample(self) -> None:
        """Write one row per value for each GPU that has not been lost. Flush if no step has done so
        for `UNFLUSHED` ns.
        """
        if self._boards is None:
            self._boards = gpu.boards()
        at, step = now(), self._step()
        for board in list(self._boards):
            try:
                samples = board.sample(at)
            except gpu.Lost:
                self._boards.remove(board)
                self._writer.problem("gpu-lost", board.uuid, step)
                continue
            for sample in samples:
                self._write(sample, step, at)
        if at - self._writer.flushed_ns > UNFLUSHED:
            self._writer.flush()

    def _write(self, sample: gpu.Sample, step: int, at: int) -> None:
        """Write one value. The parent of a per-process value's name is the name with the process
        id.
        """
        writer = self._writer
        above = 0 if sample.process is None else writer.name(f"pid {sample.process}")
        name = writer.name(sample.name, above)
        unit = UNITS.get(sample.name, Unit.VALUE)
        writer.gpu(name, sample.value, step, int(unit), writer.name(sample.gpu), at)
