"""What a loop may do with its engines: other batches, more micro-batches, a second one, saves."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

import dsprof.hook
from tests.hook.jobs import job

STEPS = 4


def micro_batches(engine: Any, first: int, count: int) -> list[float]:
    losses = []
    for micro in range(first, first + count):
        loss = engine(job.batch(micro)).square().mean()
        engine.backward(loss)
        losses.append(loss.item())
    return losses


def stepping(engine: Any) -> None:
    for step in range(STEPS):
        micro_batches(engine, step, 1)
        engine.step()


def no_sync() -> Any:
    """Three micro-batches a step, of which the engine's configuration knows one."""
    engine = job.engine(1, 1)
    with recorded("no_sync", engine):
        for step in range(STEPS):
            with engine.no_sync():
                micro_batches(engine, 3 * step, 2)
            micro_batches(engine, 3 * step + 2, 1)
            engine.step()


def batch() -> None:
    """From half-way on a step has twice the samples."""
    engine = job.engine(1, 1)
    with recorded("batch", engine):
        for step in range(STEPS):
            if step == STEPS // 2:
                engine.set_train_batch_size(2 * engine.train_batch_size())
            for micro in range(engine.gradient_accumulation_steps()):
                micro_batches(engine, 2 * step + micro, 1)
                engine.step()


def two() -> None:
    """Of different stages and batches."""
    engines = [job.engine(1, 1), job.engine(3, 2)]
    with recorded("two", *engines):
        for step in range(STEPS):
            for micros, engine in enumerate(engines, 1):
                for micro in range(micros):
                    micro_batches(engine, 2 * step + micro, 1)
                    engine.step()


def found() -> list[str]:
    """Two of which nobody says that there are any: what is imported for them that is heavy."""
    before = set(sys.modules)
    with dsprof.hook.attach(out=job.out() / "found"):
        engines = [job.engine(stage, 1) for stage in (1, 2)]
        for step in range(STEPS):
            for engine in engines:
                micro_batches(engine, step, 1)
                engine.step()
    return sorted({"pandas", "plotly", "textual", "pyarrow"} & (set(sys.modules) - before))


def reference() -> None:
    """One that only evaluates, made before the one that trains."""
    judge, engine = job.engine(0, 1), job.engine(2, 2)
    with recorded("reference", judge, engine):
        for micro in range(2 * STEPS):
            with torch.no_grad():
                judge(job.batch(micro))
            micro_batches(engine, micro, 1)
            engine.step()


def saves() -> None:
    """The whole model, which stage 3 gathers first."""
    settings = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}
    persistent = {"stage3_param_persistence_threshold": 0}
    engine = job.engine(3, 1, zero_optimization=settings | persistent)
    with recorded("saves", engine):
        stepping(engine)
        engine.save_16bit_model(str(job.out() / "saved"))
        stepping(engine)


def moves() -> None:
    """States off the device and back behind each step; real ones need a FusedAdam, and a GPU."""
    engine = job.engine(3, 1)
    engine.optimizer.offload_states = lambda *_, **__: time.sleep(0.01)
    engine.optimizer.reload_states = lambda *_, **__: time.sleep(0.01)
    with recorded("moves", engine):
        for step in range(STEPS):
            micro_batches(engine, step, 1)
            engine.step()
            engine.offload_states()
            engine.reload_states()


def scaled() -> list[float]:
    """fp16 without ZeRO, from a scale that overflows: the scale behind each step."""
    settings = {"enabled": True, "initial_scale_power": 24, "hysteresis": 1}
    engine = job.engine(0, 1, fp16=settings)
    scales = []
    with recorded("scaled", engine):
        for step in range(STEPS):
            loss = engine(job.batch(step).half()).float().square().mean()
            engine.backward(loss)
            engine.step()
            kept = getattr(engine.optimizer, "loss_scale_config", engine.optimizer)
            scales.append(float(kept.cur_scale))
    return scales


def losses() -> list[float]:
    """Two losses of one forward, which the engine gets one after the other: their sums."""
    engine = job.engine(1, 1)
    sums = []
    with recorded("losses", engine):
        for step in range(STEPS):
            given = engine(job.batch(step))
            parts = given.square().mean(), given.abs().mean()
            engine.backward(parts[0], retain_graph=True)
            engine.backward(parts[1])
            engine.step()
            sums.append(sum(part.item() for part in parts))
    return sums


def failed() -> list[float]:
    """A batch whose backward fails is left out: the losses of the others."""
    engine = job.engine(1, 1)
    told = []
    with recorded("failed", engine):
        for turn in range(2 * STEPS):
            loss = engine(job.batch(turn)).square().mean()
            if turn % 2 == 0:
                loss.register_hook(job.failing_gradient)
            try:
                engine.backward(loss)
            except ValueError:
                engine.optimizer.zero_grad()
                continue
            engine.step()
            told.append(loss.item())
    return told


def module() -> list[float]:
    """Two micro-batches a step, whose forward the loop has the model do: their means."""
    engine = job.engine(1, 2)
    means = []
    with recorded("module", engine):
        for step in range(STEPS):
            told = []
            for micro in (0, 1):
                loss = engine.module(job.batch(2 * step + micro)).square().mean()
                engine.backward(loss)
                engine.step()
                told.append(loss.item())
            means.append(sum(told) / 2)
    return means


def evaluates() -> None:
    """After every other step, with gradients."""
    engine = job.engine(1, 1)
    with recorded("evaluates", engine):
        for step in range(STEPS):
            micro_batches(engine, step, 1)
            engine.step()
            if step % 2 == 0:
                engine.eval()
                for number in range(3):
                    engine(job.batch(number))
                engine.train()


def wraps(*, trained: bool) -> None:
    """An engine, found by a search, of a model that is attached, and may have trained, before."""
    out = job.out() / ("wraps a trained model" if trained else "wraps")
    search = dsprof.hook.attach(out=out)
    net = job.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    handle = dsprof.hook.attach(net, optimizer=optimizer, out=out)
    if trained:
        net(job.batch(0)).mean().backward()
        optimizer.step()
    stepping(job.engine(1, 1, net))
    handle.detach()
    search.detach()


def recorded(name: str, *engines: Any) -> Any:
    from contextlib import ExitStack

    handles = ExitStack()
    for engine in engines:
        handles.callback(dsprof.hook.attach(engine, out=job.out() / name).detach)
    return handles


def main() -> None:
    job.start_deepspeed()
    for way in (no_sync, batch, two, reference, saves, moves, evaluates):
        way()
    for trained in (False, True):
        wraps(trained=trained)
    told = {"imported": found(), "scales": scaled()}
    job.finish(told | {"losses": losses(), "means": module(), "failed": failed()})
