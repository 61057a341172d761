"""One rank of the benchmark: `python -m benchmarks.truth.job OUT CASE...` under torchrun.

Trains the cases one after another. Each has its own folder with the recording, what the engine
printed (log.txt) and what each rank measured itself (rank-N.json).
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import dsprof
from benchmarks.truth.books import Books, overslept
from benchmarks.truth.cases import ADVISED, CASES, Case, Fault
from benchmarks.truth.trainers import Trainer, make, silence

TWIN_STEPS = 15
WARM = 2
#: `dsprof attach -- COMMAND` records by itself.
ATTACHED = "DSPROF_LAUNCH" in os.environ
#: TraceML looks at the job instead.
RIVAL = "TRUTH_RIVAL" in os.environ
#: A run whose blocks oversleep more than this part of its time shows the machine and not the
#: case: it is done again, so often at most. Runs of a quiet machine stay below 0.01.
DISTURBED = 0.015
TRIES = 3
#: A rank that waits longer for the others gives up.
PATIENCE = timedelta(seconds=float(os.environ.get("TRUTH_PATIENCE", "60")))


def start(*, engines: bool) -> None:
    """Join the process group over gloo, and DeepSpeed if some case has one of its engines."""
    if RIVAL:
        import traceml_ai

        traceml_ai.init(mode="auto")
    torch.set_num_threads(1)
    go_first()
    dist.init_process_group(
        "gloo", store=meeting_place(), rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]), timeout=PATIENCE,
    )  # fmt: skip
    if engines:
        _start_deepspeed()


def _start_deepspeed() -> None:
    import deepspeed

    # Else DeepSpeed compiles a shared-memory collective: half a minute of g++ at the first run.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # It refuses fp16 on CPUs without an instruction for it, where PyTorch computes it all the same.
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    deepspeed.init_distributed(dist_backend="gloo", timeout=PATIENCE)


def meeting_place() -> Any:
    """Of this launch alone: else ranks that are started again may find those that are gone."""
    where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"launch-{again}", dist.TCPStore(*where, is_master=False))


def go_first() -> None:
    """What else the machine computes must wait, where that is permitted: it is nobody's fault.

    A job of the bench sleeps most of its time, so that others lose little. Threads inherit it.
    """
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def run(case: Case, folder: Path) -> None:
    """The case, and again if the machine slept through it."""
    for left in reversed(range(TRIES)):
        empty(folder)
        books = attempt(case, folder)
        if not (left and disturbed(case, books)):
            break
    books.write(folder)
    gc.collect()


def empty(folder: Path) -> None:
    """What an earlier try left; a launch that is attached as a whole writes there already."""
    if not ATTACHED:
        if dist.get_rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
        dist.barrier()
    folder.mkdir(parents=True, exist_ok=True)


def disturbed(case: Case, books: Books) -> bool:
    if ATTACHED or RIVAL:
        return False
    late = torch.tensor(overslept(books))
    dist.all_reduce(late, dist.ReduceOp.MAX)
    if late > DISTURBED and dist.get_rank() == 0:
        print(f"{case.name}: blocks overslept {late:.1%} of the time: again", flush=True)
    return bool(late > DISTURBED)


def attempt(case: Case, folder: Path) -> Books:
    """Twin, the case itself, twin again: what drifts on this machine, drifts in both."""
    books = Books(case.plant, dist.get_rank())
    twins(case, books, folder)
    with contextlib.nullcontext() if ATTACHED else streams_to(folder / "log.txt"):
        train(case, books, folder)
    twins(case, books, folder)
    return books


def train(case: Case, books: Books, folder: Path) -> None:
    trainer = make(case.job, books)
    with contextlib.ExitStack() as stack:
        if not ATTACHED and not RIVAL:
            recording = dsprof.attach(
                trainer.target, optimizer=trainer.optimizer, out=folder / "recording"
            )
            stack.enter_context(recording)
        plant(trainer, books)
        if case.measure == "update":
            time_updates(trainer.target.optimizer, books)
        dist.barrier()
        books.start()
        kept: list[Any] = []
        for _ in range(case.steps):
            books.point("loop")
            happen(books, kept)
            batch = trainer.fetch()
            with watched(trainer):
                trainer.step(batch)
            save(trainer, books, folder)
            books.close_step()


def watched(trainer: Trainer) -> contextlib.AbstractContextManager[Any]:
    """A step, as the rival wants it marked: batches are fetched before it."""
    if not RIVAL:
        return contextlib.nullcontext()
    import traceml_ai

    return traceml_ai.trace_step(trainer.target)  # type: ignore[no-any-return]


def plant(trainer: Trainer, books: Books) -> None:
    """The place "optimizer"; set up behind the hook, so that it lies inside its phase."""
    trainer.inner.register_step_pre_hook(lambda *_: books.point("optimizer"))


def time_updates(optimizer: Any, books: Books) -> None:
    raw = optimizer.step

    def step(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        result = raw(*args, **kwargs)
        books.update[books.step] += time.perf_counter() - begin
        return result

    optimizer.step = step


def happen(books: Books, kept: list[Any]) -> None:
    """Faults that are no delay."""
    if books.due("leak"):
        kept.append(torch.ones(int(books.fault.amount) // 4))
    first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if books.due("kill") and first:
        os.kill(os.getpid(), signal.SIGKILL)
    if books.due("stop"):
        time.sleep(3600)


def save(trainer: Trainer, books: Books, folder: Path) -> None:
    """A checkpoint on a slow disk; all of it is the loss."""
    if not books.due("save"):
        return
    begin = time.perf_counter()
    checkpoint = trainer.target.checkpoint_engine
    raw = checkpoint.save

    def slowly(*args: Any, **kwargs: Any) -> Any:
        time.sleep(books.fault.seconds)
        return raw(*args, **kwargs)

    checkpoint.save = slowly
    trainer.target.save_checkpoint(str(folder / "checkpoint"))
    checkpoint.save = raw
    books.charge(time.perf_counter() - begin)


def twins(case: Case, books: Books, folder: Path) -> None:
    """What is measured beside the case: the job without its loss, and as it was advised."""
    if RIVAL:
        return
    for kept, changes in ((books.twins, case.twin), (books.mended, ADVISED.get(case.name))):
        kept.extend(twin(case, changes, folder, f"twin-{len(books.twins)}-{len(books.mended)}"))


def twin(
    case: Case, changes: Mapping[str, Any] | None, folder: Path, name: str
) -> list[list[float]]:
    """Seconds of steps of the job with `changes` and without its fault.

    Recorded as the case is, so that what the recorder costs is in both.
    """
    if changes is None:
        return []
    job = replace(case.job, **changes)
    books = Books(Fault(), dist.get_rank())
    with streams_to(folder / "twin.txt"):
        trainer = make(job, books)
        recording = dsprof.attach(trainer.target, optimizer=trainer.optimizer, out=folder / name)
        with recording, silence(job.silent):
            for step in range(WARM + TWIN_STEPS):
                if step == WARM:
                    books.start()
                trainer.step(trainer.fetch())
                if step >= WARM:
                    books.close_step()
        dist.barrier()
    return [books.steps]


@contextlib.contextmanager
def streams_to(path: Path) -> Iterator[None]:
    """Both streams of all ranks into one file, as a launcher would."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, stream in enumerate(kept, 1):
            os.dup2(stream, number)
            os.close(stream)
        os.close(file)


def main() -> None:
    out, cases = Path(sys.argv[1]), [CASES[name] for name in sys.argv[2:]]
    start(engines=any(case.job.logs for case in cases))
    for case in cases:
        run(case, out / case.name)
        if dist.get_rank() == 0:
            print(case.name, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
