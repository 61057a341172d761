"""What training without an engine does between steps: save, evaluate, generate and profile.

Libraries write a model, its optimizer and more with several functions; together they are one save.
Evaluation is timed as a whole because a trainer may call the model inside its wrapper, whose
forward is then not seen, and because it also gathers the results.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from dsprof.events import Class
from dsprof.hook.guard import Guard
from dsprof.hook.patches import Call, Patches
from dsprof.imports import when_imported

_TRANSFORMERS: Final = ("transformers.trainer", "Trainer")
#: Functions of modules; all of them save.
_FUNCTIONS: Final = (
    ("torch", "save"),
    ("torch.distributed.checkpoint", "save"),
    ("torch.distributed.checkpoint", "async_save"),
)
#: Methods of classes.
_SAVE: Final = (
    ("accelerate.accelerator", "Accelerator", "save_state"),
    (*_TRANSFORMERS, "_save_checkpoint"),
    ("lightning.pytorch.trainer.trainer", "Trainer", "save_checkpoint"),
    ("pytorch_lightning.trainer.trainer", "Trainer", "save_checkpoint"),
)
#: Lightning's evaluation is timed batch by batch, because Lightning also saves inside the loop.
_EVALUATE: Final = (
    (*_TRANSFORMERS, "evaluate"),
    (*_TRANSFORMERS, "predict"),
    ("lightning.pytorch.loops.evaluation_loop", "_EvaluationLoop", "_evaluation_step"),
    ("pytorch_lightning.loops.evaluation_loop", "_EvaluationLoop", "_evaluation_step"),
    ("composer.trainer.trainer", "Trainer", "_eval_loop"),
    ("mmengine.runner.loops", "ValLoop", "run"),
)
_GENERATE: Final = (("transformers.generation.utils", "GenerationMixin", "generate"),)
GENERATE: Final = ("generate", Class.COMPUTE)
#: Where PyTorch's profiler starts and stops recording, and writes what it recorded.
_PROFILE: Final = tuple(("torch.profiler.profiler", "profile", name) for name in ("step", "stop"))


def patch(
    patches: Patches, around: Callable[[str, Class], Callable[[Call], Call]], guard: Guard
) -> None:
    """Record these calls as phases, in each library once it is loaded; `around` makes the
    decorators.
    """
    saving = around("checkpoint", Class.CHECKPOINT)
    for module, name in _FUNCTIONS:
        action = partial(_function, patches, name, saving)
        patches.undo_with(when_imported(module, guard(action)))
    evaluating = around("evaluation", Class.OTHER)
    profiling = around("profiler", Class.OTHER)
    for ways, phase in (
        (_SAVE, saving), (_EVALUATE, evaluating), (_GENERATE, around(*GENERATE)),
        (_PROFILE, profiling),
    ):  # fmt: skip
        for module, kind, name in ways:
            action = partial(_method, patches, kind, name, phase)
            patches.undo_with(when_imported(module, guard(action)))


def _function(patches: Patches, name: str, phase: Callable[[Call], Call], library: Any) -> None:
    if hasattr(library, name):
        patches.method(library, name, phase)


def _method(
    patches: Patches, kind: str, name: str, phase: Callable[[Call], Call], library: Any
) -> None:
    owner: Any = getattr(library, kind, object)
    if name in vars(owner):
        patches.of_class(owner, name, phase)
