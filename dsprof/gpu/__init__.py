"""The GPUs of one node as NVIDIA's driver sees them, through NVML: no CUDA, no torch.

    boards() ─► Board.sample() ─► Sample(gpu, name, value, process)

What a GPU, driver or container does not tell gives no sample: unknown is never 0.
"""

from __future__ import annotations

from dsprof.gpu.nvml import Board, Lost, Sample, boards
from dsprof.gpu.visible import visible

__all__ = ["Board", "Lost", "Sample", "boards", "visible"]
