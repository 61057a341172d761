"""A rank that does nothing but sample: `python sampling.py RUN RANK`, until it is killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from dsprof.hook.on_gpu.sampler import Sampler
from dsprof.recording import Writer

if __name__ == "__main__":
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    writer = Writer.create(folder, {"rank": rank})
    writer.flush()
    Sampler(writer, folder, lambda: -1, every=0.02).start()
    print("ready", flush=True)
    while True:
        time.sleep(0.05)
        writer.flush()
