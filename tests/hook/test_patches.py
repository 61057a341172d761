"""Wrapping methods of live objects, and taking every wrapper off again."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import types
import unittest
import weakref
from typing import Any

import pytest

from dsprof.hook.patches import Call, Patches


class Engine:
    def step(self, lr: float = 1.0) -> float:
        """One step."""
        return lr


def counted(calls: list[str]) -> Any:
    def around(raw: Call) -> Call:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append("called")
            return raw(*args, **kwargs)

        return call

    return around


def test_a_wrapped_function_of_a_module_goes_to_another_process_by_its_name() -> None:
    """As `Process(target=torch.save)` does, which is defined in a module below."""
    patches, raw = Patches(), unittest.skip
    assert raw.__module__ != "unittest"
    patches.method(unittest, "skip", counted([]))
    try:
        assert unittest.skip is not raw
        assert pickle.loads(pickle.dumps(unittest.skip)) is unittest.skip
    finally:
        patches.undo()
    assert pickle.loads(pickle.dumps(unittest.skip)) is raw


def test_a_wrapped_method_does_and_looks_as_before() -> None:
    calls: list[str] = []
    engine, other = Engine(), Engine()
    Patches().method(engine, "step", counted(calls))
    assert engine.step(lr=2.0) == 2.0
    assert other.step() == 1.0
    assert calls == ["called"]
    assert engine.step.__doc__ == "One step."
    assert list(inspect.signature(engine.step).parameters) == ["lr"]


def test_undo_restores_what_the_instance_itself_held() -> None:
    patches, engine, own = Patches(), Engine(), lambda: 3.0
    engine.step = own  # type: ignore[method-assign, assignment]
    patches.method(engine, "step", counted([]))
    patches.method(engine, "step", counted([]))
    patches.undo()
    assert engine.step is own


def test_undo_leaves_no_attribute_behind() -> None:
    patches, engine = Patches(), Engine()
    patches.method(engine, "step", counted([]))
    patches.value(engine, "map", {})
    patches.undo()
    assert vars(engine) == {}


def test_a_wrapper_that_somebody_put_over_ours_stays() -> None:
    patches, engine = Patches(), Engine()
    patches.method(engine, "step", counted([]))
    theirs = lambda: 4.0  # noqa: E731
    engine.step = theirs  # type: ignore[method-assign, assignment]
    patches.undo()
    assert engine.step is theirs


class Model:
    """Copied as a torch module is: by its `__dict__`."""

    weight = 1

    def forward(self) -> int:
        return self.weight


class Copied(Model):
    """Copies itself, attribute by attribute, as parametrized modules and many others do."""

    def __deepcopy__(self, memo: Any) -> Copied:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        vars(made).update({key: copy.deepcopy(value, memo) for key, value in vars(self).items()})
        return made


class Rebuilt(Model):
    """Is made anew from its `__dict__`, as a module that `torch.fx` traced is."""

    def __reduce__(self) -> Any:
        return _rebuilt, (type(self), vars(self).copy())


def _rebuilt(kind: type[Model], held: dict[str, Any]) -> Model:
    made = kind()
    vars(made).update(held)
    return made


@pytest.mark.parametrize(
    ("kind", "wrapped_before"),
    [(Model, False), (Model, True), (Copied, False), (Copied, True), (Rebuilt, False)],
)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_wrapped_model_computes_with_its_own_weights(
    copied: Any, kind: type[Model], *, wrapped_before: bool
) -> None:
    patches, model, calls = Patches(), kind(), list[str]()
    if wrapped_before:  # as accelerate wraps a model for mixed precision
        model.forward = types.MethodType(Model.forward, model)  # type: ignore[method-assign]
    held = set(vars(model))
    patches.method_of_a_model(model, "forward", counted(calls))
    other = copied(model)
    other.weight = 2
    assert (model.forward(), other.forward()) == (1, 2)
    assert calls == ["called"]
    assert set(vars(other)) == held | {"weight"}
    patches.undo()
    assert set(vars(model)) == held


def test_a_model_that_says_itself_how_it_is_copied_is_asked() -> None:
    class Own(Model):
        def __reduce__(self) -> Any:
            return Own, ()

    model = Own()
    Patches().method_of_a_model(model, "forward", counted([]))
    assert vars(copy.deepcopy(model)) == {}


def test_how_a_single_model_says_that_it_is_copied_stays() -> None:
    model = Model()
    model.__deepcopy__ = lambda _: 3  # type: ignore[attr-defined]
    Patches().method_of_a_model(model, "forward", counted([]))
    copied: Any = copy.deepcopy(model)
    assert copied == 3


def test_a_model_that_is_its_own_copy_stays_wrapped() -> None:
    class Only(Model):
        def __deepcopy__(self, _: Any) -> Only:
            return self

    model, calls = Only(), list[str]()
    Patches().method_of_a_model(model, "forward", counted(calls))
    assert copy.deepcopy(model).forward() == 1
    assert calls == ["called"]


def test_undo_goes_on_behind_what_fails() -> None:
    def fail() -> None:
        raise ValueError("somebody else took it off")

    patches, engine = Patches(), Engine()
    patches.method(engine, "step", counted([]))
    patches.undo_with(fail)
    with pytest.raises(ValueError, match="somebody else"):
        patches.undo()
    assert vars(engine) == {}
    patches.undo()


def test_a_class_gets_its_own_raw_attribute_back() -> None:
    class Pybind:
        @staticmethod
        def wait() -> int:
            return 1

    raw = vars(Pybind)["wait"]
    patches, calls = Patches(), list[str]()
    patches.of_class(Pybind, "wait", counted(calls))
    assert Pybind.wait() == 1
    patches.undo()
    assert vars(Pybind)["wait"] is raw
    assert calls == ["called"]


def test_a_wrapped_object_is_freed_as_soon_as_before() -> None:
    """No cycle: memory of a model goes with its last reference, not with the next collection."""
    patches, engine = Patches(), Engine()
    patches.method(engine, "step", counted([]))
    gone = weakref.ref(engine)
    gc.disable()
    try:
        del engine
        assert gone() is None
    finally:
        gc.enable()
    patches.undo()  # of what is no more


@pytest.mark.parametrize("asked_first", [True, False])
def test_methods_hold_their_owner_where_they_are_asked_to_in_a_cycle_that_ends_with_it(
    *, asked_first: bool
) -> None:
    patches, engine = Patches(), Engine()
    if asked_first:
        patches.hold()
    patches.method(engine, "step", counted([]))
    if not asked_first:
        patches.hold()
    reference = weakref.ref(engine)
    gc.disable()
    try:
        del engine
        assert reference() is not None
    finally:
        gc.enable()
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("undone", [False, True])
def test_a_method_that_somebody_took_keeps_what_its_owner_was_made_of(*, undone: bool) -> None:
    """As any method would, and not a moment longer."""
    patches, model, calls = Patches(), Model(), list[str]()
    part = model.part = Engine()  # type: ignore[attr-defined]
    model.weight = 3
    patches.method_of_a_model(model, "forward", counted(calls))
    taken, gone = model.forward, weakref.ref(part)
    if undone:
        patches.undo()
    gc.disable()
    try:
        del model, part
        assert (taken(), taken()) == (3, 3)
        assert len(calls) == 2
        assert gone() is not None
        del taken
        assert gone() is None
    finally:
        gc.enable()
    patches.undo()


def test_a_model_is_freed_as_soon_as_before_also_where_it_was_wrapped_twice() -> None:
    patches, model = Patches(), Model()
    part = model.part = Engine()  # type: ignore[attr-defined]
    gone = weakref.ref(part)
    for _ in range(2):
        patches.method_of_a_model(model, "forward", counted([]))
    gc.disable()
    try:
        del model, part
        assert gone() is None
    finally:
        gc.enable()
    patches.undo()


def test_who_unwinds_a_method_to_bind_it_again_gets_what_was_there_before() -> None:
    """As `Accelerator.unwrap_model` does."""
    model = Model()
    Patches().method_of_a_model(model, "forward", counted([]))
    unwound = inspect.unwrap(model.forward)
    assert unwound is Model.forward
    assert types.MethodType(unwound, model)() == 1
    assert list(inspect.signature(model.forward).parameters) == []


def test_a_model_whose_own_method_holds_it_is_freed_as_ever_while_it_is_attached() -> None:
    """As that of accelerate for mixed precision: by the next collection."""
    patches, model = Patches(), Model()
    model.forward = types.MethodType(Model.forward, model)  # type: ignore[method-assign]
    patches.method_of_a_model(model, "forward", counted([]))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    patches.undo()
