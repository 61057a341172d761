"""The generated logs of a benchmark, created once and kept until the generator changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from benchmarks import generate
from benchmarks.generate import Options

MIB, GIB = 1 << 20, 1 << 30
_SOURCES = ("generate.py", "dialects.py", "noise.py", "counts.py")


class Logs:
    """Logs in `folder`, each made when it is first asked for."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.size = 64 * MIB if quick else GIB
        sources = b"".join((Path(__file__).parent / name).read_bytes() for name in _SOURCES)
        self.folder = folder / hashlib.sha256(sources).hexdigest()[:8]
        self.folder.mkdir(parents=True, exist_ok=True)

    def share(self, share: float) -> Path:
        """A log of mixed launches with that share of metric lines."""
        options = Options(size=self.size, metric_share=share)
        return self._made(f"share{share * 100:.0f}-{self.size // MIB}", options)

    def small(self) -> Path:
        """A log to read in many ways, with every launcher's prefix line by line."""
        return self._made("small", Options(size=16 * MIB, wrapper="mixed"))

    def dialect(self, name: str) -> Path:
        """A log of one launch, so that every line's step is beyond doubt."""
        options = Options(size=8 * MIB, dialects=(name,), launches=1)
        return self._made(name, options)

    def steps(self) -> Path:
        """100,000 steps of the plain engine, every line of every step, nothing else."""
        options = Options(
            metric_share=1, steps=100_000, launches=1, dialects=("plain-0.18",), clean=True
        )
        return self._made("steps", options)

    def one_line(self) -> Path:
        """Records whose line breaks are all lost; noise between them would end nowhere."""
        options = Options(
            size=10**8,
            metric_share=1,
            wrapper="none",
            dialects=("megatron", "huggingface"),
            launches=2,
            newline="",
            clean=True,
        )
        return self._made("one-line", options)

    def bars(self) -> Path:
        """A progress bar's output: carriage returns only."""
        size = min(self.size, 256 * MIB)
        return self._file(f"bars-{size // MIB}", lambda log: generate.write_bars(log, size))

    def packed(self, log: Path, form: str) -> Path:
        """The log's compressed copy."""
        path = log.with_name(f"{log.name}.{form}")
        return path if path.exists() else generate.compress(log, form)

    def _made(self, name: str, options: Options) -> Path:
        return self._file(name, lambda log: generate.write(log, options))

    def _file(self, name: str, make: Callable[[Path], object]) -> Path:
        log = self.folder / f"{name}.log"
        if not generate.truth_path(log).exists():
            make(log)
        return log
