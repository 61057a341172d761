"""The tensors in what a model returned, which may be any object that holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final

MOST_OUTPUTS: Final = 16  # tensors of one forward's output that get a hook


def held(one: Any, name: str, otherwise: Any = None) -> Any:
    """An attribute of what a model returned, if it is there.

    Nothing is computed for it: a property may do so with random numbers, which training then lacks.
    Nor does it matter how the object says that it has none.
    """
    if isinstance(getattr(type(one), name, None), (property, cached_property)):
        return otherwise
    try:
        return getattr(one, name, otherwise)
    except Exception:  # noqa: BLE001 - code of the job: a `KeyError`, say
        return otherwise


def at_gradient(tensor: Any, hook: Callable[[Any], None]) -> None:
    """Have `hook` called when a gradient reaches a tensor. Training that saves the tensor before
    that is not warned that this hook gets lost.
    """
    from torch.utils.hooks import unserializable_hook

    tensor.register_hook(unserializable_hook(hook))


def first_with_gradient(output: Any) -> Any:
    """The first tensor with gradients in a model's output, or None.

    Parameters that a model returns are left out: hooks on them would outlive the step.
    """
    if held(output, "requires_grad") is not None:  # shortcut for the usual case, once per step
        return output if output.requires_grad and not output.is_leaf else None
    return next((one for one in tensors_in(output) if one.requires_grad and not one.is_leaf), None)


def tensors_in(output: Any, *, of_objects: bool = True) -> Iterator[Any]:
    """The tensors in a model's output: nested in dicts, lists, tuples and, one level deep, in
    attributes of other objects.
    """
    if held(output, "requires_grad") is not None:
        yield output
        return
    if isinstance(output, dict):
        output = list(output.values())
    elif of_objects and hasattr(output, "__dict__"):
        of_objects, output = False, list(vars(output).values())
    if isinstance(output, list | tuple):
        for part in output:
            yield from tensors_in(part, of_objects=of_objects)
