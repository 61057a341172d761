"""The GPUs of one node as NVIDIA's driver sees them, through NVML: no CUDA, no torch.

    boards() ─► Board.sample() ─► Sample(gpu, name, value, process)

A counter that a GPU, driver or container does not provide yields no sample; it is never 0 instead.
"""

from __future__ import annotations

from dsprof.gpu.nvml import Board, Lost, Sample, boards
from dsprof.gpu.visible import visible

__all__ = ["Board", "Lost", "Sample", "boards", "visible"]
