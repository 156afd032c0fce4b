# SPDX-License-Identifier: Apache-2.0
"""Watching functions of JAX: what each call of them computes goes into a run."""

from __future__ import annotations

import atexit
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import MethodType
from typing import Any, NamedTuple

import jax
import numpy as np

from opscope.record.active import active
from opscope.record.jax.book import Book, Whole
from opscope.record.jax.executed import State, used
from opscope.record.jax.interpreted import Held, Interpreter
from opscope.record.jax.names import GRADIENT, Leaf, names_of, parameters_of
from opscope.record.jax.phases import in_phases, with_beginnings
from opscope.run.contain import contain, reason, tell


class _Traced(NamedTuple):
    """A function for certain arguments as a program, and how its results are put together: places
    of traced leaves among all.
    """

    program: Any
    leaves: list[Any]
    places: list[int]
    paths: list[tuple[str, ...]]
    tree: Any


class JaxRecording:
    """A run of functions of JAX. A step ends when a function is called that was called in it
    before, or where step() says so; the run when the program does, or by close().
    """

    def __init__(self, path: Path, *, values: bool) -> None:
        self._book = Book(path, values=values)
        self.path = self._book.path
        self._called: set[int] = set()
        self._process = os.getpid()
        self._open = True
        active.marks.append(self.step)
        atexit.register(self.close)

    def call(
        self,
        function: Callable[..., Any],
        given: tuple[tuple[Any, ...], dict[str, Any]],
        parameters: frozenset[str],
    ) -> Any:
        """What a call of a function returns, recorded; inside of a transformation, whose arrays
        hold no numbers yet, and where nothing can be recorded, it is called as it is.
        """
        args, kwargs = given
        leaves = jax.tree_util.tree_leaves(given)
        if self._records() and not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            recorded = contain(self._missed, self._recorded, function, given, parameters)
            if recorded is not None:
                return recorded[0]
        return function(*args, **kwargs)

    def _records(self) -> bool:
        """Whether there is anything to write to; a child that was forked leaves the run to its
        parent.
        """
        return self._open and os.getpid() == self._process and not self._book.failed

    def _missed(self, error: BaseException) -> None:
        tell(f"a call of a JAX function is not recorded, it runs as it is: {reason(error)}")

    def step(self) -> None:
        """Say that a step is over."""
        if self._called and self._records():
            contain(self._missed, self._book.end_step)
            self._called.clear()

    def close(self) -> None:
        """End the run; the functions go on unrecorded."""
        if self._records():
            self.step()
            self._open = False
            contain(self._missed, self._book.close)
        if self.step in active.marks:
            active.marks.remove(self.step)
        atexit.unregister(self.close)

    # -- one call ----------------------------------------------------------------------------------

    def _recorded(
        self, function: Callable[..., Any], given: tuple[Any, Any], parameters: frozenset[str]
    ) -> tuple[Any]:
        """What a call of the function returns, in a tuple of one; its rows are written."""
        leaves, tree = jax.tree_util.tree_flatten_with_path(given)
        arrays = [number for number, (_, leaf) in enumerate(leaves) if _is_array(leaf)]
        values = [leaves[number][1] for number in arrays]
        traced = _traced(function, tree, [leaf for _, leaf in leaves], arrays)
        held = [Held(value, self._book.state_of(value)) for value in values]
        constants = [Held(value, self._book.state_of(value)) for value in traced.program.consts]
        interpreter = Interpreter(self._book.measure)
        made = interpreter.execute(traced.program, constants, held)
        arguments = _named_arguments(function)
        read = [
            Leaf(_path(leaves[number][0], arguments), one.told)
            for number, one in zip(arrays, held, strict=True)
            if isinstance(one.told, State)
        ]
        results = [
            Leaf(traced.paths[number], one.told)
            for number, one in zip(traced.places, made, strict=True)
            if isinstance(one.told, State)
        ]
        name = getattr(function, "__name__", type(function).__name__)
        whole = self._understood(name, interpreter, read, results, parameters)
        if id(function) in self._called:
            self.step()
        self._called.add(id(function))
        out = list(traced.leaves)
        for number, one in zip(traced.places, made, strict=True):
            out[number] = jax.numpy.asarray(one.value) if _is_written(one.value) else one.value
            if isinstance(one.told, State):
                self._book.meet(out[number], one.told)
        self._book.add(whole)
        return (jax.tree_util.tree_unflatten(traced.tree, out),)

    def _understood(
        self,
        name: str,
        interpreter: Interpreter,
        read: Sequence[Leaf],
        results: Sequence[Leaf],
        parameters: frozenset[str],
    ) -> Whole:
        """A call of a function with the phases of what it ran, and the names of arrays."""
        known = parameters_of(read, parameters) | self._book.names
        graded = any(
            known[leaf.state.version].role == GRADIENT
            for leaf in read
            if leaf.state.version in known
        )
        made = [leaf.state for leaf in results]
        calls = in_phases(used(interpreter.calls, made), graded=graded)
        begun = [leaf.state for leaf in read]
        calls = with_beginnings(calls, begun, made, self._one)
        return Whole(
            function=name,
            given=tuple(read),
            results=tuple(results),
            calls=tuple(calls),
            names=names_of(calls, read, results, known),
        )

    def _one(self, loss: State) -> State:
        dtype = loss.row.dtype if loss.row is not None else "float32"
        return self._book.measure(jax.numpy.ones((), dtype))


class Watched:
    """A function of JAX that records its calls; all else of it is the function's own."""

    def __init__(
        self, function: Callable[..., Any], recording: JaxRecording, parameters: frozenset[str]
    ) -> None:
        functools.update_wrapper(self, function)
        self.recording = recording
        self._function, self._parameters = function, parameters

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.recording.call(self._function, (args, kwargs), self._parameters)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_function"], name)


def is_jitted(function: object) -> bool:
    """Whether a function is one of jax.jit, which traces it anyway."""
    return isinstance(function, type(jax.jit(_is_array)))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def _is_written(value: Any) -> bool:
    return not isinstance(value, jax.Array)


def _traced(
    function: Callable[..., Any], tree: Any, leaves: Sequence[Any], arrays: Sequence[int]
) -> _Traced:
    """The function as a program of the arrays among its arguments; all else is as it is given."""
    returned: list[Any] = []

    def program(*values: Any) -> list[Any]:
        whole = list(leaves)
        for number, value in zip(arrays, values, strict=True):
            whole[number] = value
        args, kwargs = jax.tree_util.tree_unflatten(tree, whole)
        out, structure = jax.tree_util.tree_flatten_with_path(function(*args, **kwargs))
        returned[:] = [out, structure]
        return [leaf for _, leaf in out if isinstance(leaf, jax.core.Tracer)]

    traced = jax.make_jaxpr(program)(*(leaves[number] for number in arrays))
    out, structure = returned
    places = [number for number, (_, leaf) in enumerate(out) if isinstance(leaf, jax.core.Tracer)]
    return _Traced(
        traced,
        [leaf for _, leaf in out],
        places,
        [tuple(_words(path)) for path, _ in out],
        structure,
    )


def _named_arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of arguments by position, as far as they are known."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def _path(path: Sequence[Any], arguments: Sequence[str]) -> tuple[str, ...]:
    """Where an argument's array stands; path begins with args or kwargs."""
    kind, first, *rest = _words(path)
    if kind == "0" and first.isdigit() and int(first) < len(arguments):
        first = arguments[int(first)]
    return first, *rest


def _words(path: Sequence[Any]) -> Iterator[str]:
    for key in path:
        for name in ("key", "idx", "name"):
            if hasattr(key, name):
                yield str(getattr(key, name))
                break
