"""What training without an engine does between steps: save, evaluate and generate.

Libraries write a model, its optimizer and more with several functions; together they are one save.
Evaluation is timed as a whole because a trainer may call the model inside its wrapper, whose
forward is then not seen, and because it also gathers the results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from dsprof.events import Class
from dsprof.hook.patches import Call, Patches

_TRANSFORMERS: Final = ("transformers.trainer", "Trainer")
#: Functions of modules, patched if their module is loaded; all of them save.
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
)
_GENERATE: Final = (("transformers.generation.utils", "GenerationMixin", "generate"),)
GENERATE: Final = ("generate", Class.COMPUTE)


def patch(patches: Patches, around: Callable[[str, Class], Callable[[Call], Call]]) -> None:
    """Record these calls as phases, in the libraries loaded so far; `around` makes the
    decorators.
    """
    saving = around("checkpoint", Class.CHECKPOINT)
    for module, name in _FUNCTIONS:
        if hasattr(sys.modules.get(module), name):
            patches.method(sys.modules[module], name, saving)
    evaluating = around("evaluation", Class.OTHER)
    for ways, phase in ((_SAVE, saving), (_EVALUATE, evaluating), (_GENERATE, around(*GENERATE))):
        for module, kind, name in ways:
            owner: Any = getattr(sys.modules.get(module), kind, object)
            if name in vars(owner):
                patches.of_class(owner, name, phase)
