"""GPU counters of the node, sampled by one rank of the node for all of them.

Every rank has a thread that sleeps; the one that holds the node's lock samples. The kernel releases
the lock when its process dies, however it dies, and another rank takes over.
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
PATIENCE: Final = 0.5  # seconds that the end of training waits for a driver that does not answer
UNFLUSHED: Final = 1_000_000_000  # ns after which samples go to the kernel without a step's end

_BYTES: Final = ("memory_used", "memory_total", "memory_process")
_COUNTS: Final = ("ecc_corrected", "ecc_uncorrected")
UNITS: Final = dict.fromkeys(_BYTES, Unit.BYTES) | dict.fromkeys(_COUNTS, Unit.COUNT)


class Turn:
    """The right to sample for this node and run folder, held by one process at most.

    A POSIX record lock: a fork does not inherit it, so a data loader's worker that outlives
    its rank holds nothing. It lies in the node's own temporary folder, for a lock on a
    shared file system would be one for all nodes.
    """

    def __init__(self, folder: Path) -> None:
        mark = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:16]
        self._path = Path(tempfile.gettempdir()) / f"dsprof-gpu-{os.getuid()}-{mark}"
        self._fd = -1

    def taken(self) -> bool:
        """Whether it is ours now.

        Raises:
            OSError: the lock's file cannot be made.
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
            pass  # another's
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
        """Whether that is the lock's file: another rank may have removed it meanwhile, or training
        closed all descriptors, and with them the lock, and opened another file by this number."""
        try:
            return fd >= 0 and os.path.samestat(os.stat(self._path), os.fstat(fd))  # noqa: PTH116
        except OSError:
            return False


class Sampler:
    """A daemon thread that writes GPU rows while it is this rank's turn."""

    def __init__(
        self,
        writer: Writer,
        folder: Path,
        step: Callable[[], int],
        *,
        unnamed: int | None = None,
        every: float = EVERY,
    ) -> None:
        """`unnamed` is CUDA's number of this rank's GPU, if its UUID is still to be found."""
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
        """No row is written after this, unless the driver hangs."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE)
        self._turn.release()

    def _loop(self) -> None:
        """A driver that tells nothing is a note in the recording; training never hears of it."""
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
        """Say which GPU this rank uses, where torch could not."""
        if self._unnamed is None:
            return
        order = gpu.visible(os.environ, gpu.boards()) or []
        if self._unnamed < len(order):
            self._writer.config("gpu", order[self._unnamed])

    def _sample(self) -> None:
        """One row a value of each GPU that is left, and to the kernel with them if nothing is."""
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
        """What is told by process has its id before the name."""
        writer = self._writer
        above = 0 if sample.process is None else writer.name(f"pid {sample.process}")
        name = writer.name(sample.name, above)
        unit = UNITS.get(sample.name, Unit.VALUE)
        writer.gpu(name, sample.value, step, int(unit), writer.name(sample.gpu), at)
