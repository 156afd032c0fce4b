# SPDX-License-Identifier: Apache-2.0
"""Executes a program of JAX (a jaxpr) primitive by primitive and tells what each read and made.

What calls programs of its own (jit, checkpoint, custom derivatives, cond, while, scan) is gone
into; a primitive that holds one and is none of these is executed as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import msgspec
import numpy as np

from opscope.record.jax.executed import Executed, State, Written
from opscope.record.own_code import OPSCOPE, inside
from opscope.run.schema import dense_strides

# Primitives that only call a program, and the parameter that holds it.
_BODIES = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
_JITTED = frozenset({"jit", "pjit"})
# What gives the elements that it reads, in their order.
_SAME = frozenset({"reshape", "squeeze", "expand_dims", "copy", "copy_p"})
_JAX = str(Path(jax.__file__).parent)
SHOWN = 4096  # characters of a call's parameters


class Held(NamedTuple):
    """A value while a program runs, and what is told of it."""

    value: Any
    told: State | Written


class _Where(NamedTuple):
    """Where an equation stands: the stack of names and the frames, and of these the ones outside of
    the innermost jitted function.
    """

    scope: str
    frames: tuple[str, ...]
    outside: tuple[str, ...]


class Interpreter:
    """Executes programs; measure gives the state of a new array."""

    def __init__(self, measure: Callable[[Any], State]) -> None:
        self.calls: list[Executed] = []
        self._measure = measure
        self._frames: dict[Any, tuple[str, ...]] = {}
        self._enter: Mapping[str, Callable[[Any, Sequence[Held], _Where], list[Held]]] = {
            **dict.fromkeys(_BODIES, self._body),
            "cond": self._cond,
            "while": self._while,
            "scan": self._scan,
        }

    def execute(self, program: Any, constants: Sequence[Held], given: Sequence[Held]) -> list[Held]:
        """The results of a program for what it is given."""
        return self._run(program.jaxpr, constants, given, _Where("", (), ()))

    def _run(
        self, jaxpr: Any, constants: Sequence[Held], given: Sequence[Held], where: _Where
    ) -> list[Held]:
        held = dict(zip(jaxpr.constvars, constants, strict=True))
        held |= dict(zip(jaxpr.invars, given, strict=True))
        for equation in jaxpr.eqns:
            read = [_atom(each, held) for each in equation.invars]
            around = self._around(equation, where)
            name = equation.primitive.name
            enter = self._enter.get(name)
            with equation.ctx.manager:
                made = (
                    self._bound(equation, read, around)
                    if enter is None
                    else enter(equation, read, around)
                )
            held.update(zip(equation.outvars, made, strict=True))
        return [_atom(each, held) for each in jaxpr.outvars]

    def _closed(self, program: Any, given: Sequence[Held], where: _Where) -> list[Held]:
        constants = [self._new(each) for each in getattr(program, "consts", ())]
        return self._run(getattr(program, "jaxpr", program), constants, given, where)

    def _new(self, value: Any) -> Held:
        return Held(value, self._measure(value))

    # -- what calls programs of its own ------------------------------------------------------------

    def _body(self, equation: Any, read: Sequence[Held], where: _Where) -> list[Held]:
        return self._closed(equation.params[_BODIES[equation.primitive.name]], read, where)

    def _cond(self, equation: Any, read: Sequence[Held], where: _Where) -> list[Held]:
        branches = equation.params["branches"]
        chosen = min(max(int(read[0].value), 0), len(branches) - 1)
        return self._closed(branches[chosen], read[1:], where)

    def _while(self, equation: Any, read: Sequence[Held], where: _Where) -> list[Held]:
        params = equation.params
        first = params["cond_nconsts"]
        second = first + params["body_nconsts"]
        asked, kept, carried = read[:first], read[first:second], list(read[second:])
        while bool(self._closed(params["cond_jaxpr"], [*asked, *carried], where)[0].value):
            carried = self._closed(params["body_jaxpr"], [*kept, *carried], where)
        return carried

    def _scan(self, equation: Any, read: Sequence[Held], where: _Where) -> list[Held]:
        params = equation.params
        first = params["num_consts"]
        second = first + params["num_carry"]
        kept, carried, rows = read[:first], list(read[first:second]), read[second:]
        order = range(params["length"])
        stacked: list[list[Held]] = []
        for round_number in reversed(order) if params["reverse"] else order:
            slices = [self._row(each, round_number, where) for each in rows]
            made = self._closed(params["jaxpr"], [*kept, *carried, *slices], where)
            carried = made[: len(carried)]
            stacked.append(made[len(carried) :])
        if params["reverse"]:
            stacked.reverse()
        results = equation.outvars[len(carried) :]
        columns = zip(*stacked, strict=True) if stacked else [()] * len(results)
        made = [
            self._stack(list(parts), result.aval, where)
            for parts, result in zip(columns, results, strict=True)
        ]
        return [*carried, *made]

    def _row(self, held: Held, number: int, where: _Where) -> Held:
        """A row of what a scan goes through."""
        row = self._new(jax.lax.index_in_dim(held.value, number, keepdims=False))
        self._note("slice", [held], [row], where, {"place": number})
        return row

    def _stack(self, parts: list[Held], like: Any, where: _Where) -> Held:
        """What the rounds of a scan made, together."""
        values = [each.value for each in parts]
        whole = jax.numpy.stack(values) if values else jax.numpy.zeros(like.shape, like.dtype)
        stacked = self._new(whole)
        self._note("stack", parts, [stacked], where, {})
        return stacked

    # -- what computes -----------------------------------------------------------------------------

    def _bound(self, equation: Any, read: Sequence[Held], where: _Where) -> list[Held]:
        primitive = equation.primitive
        bind_params = primitive.get_bind_params(equation.params)
        functions, params = bind_params if isinstance(bind_params, tuple) else ((), bind_params)
        result = primitive.bind(*functions, *(each.value for each in read), **params)
        values = list(result) if primitive.multiple_results else [result]
        made = [
            Held(each, self._view(equation, read, each) or self._measure(each)) for each in values
        ]
        self._note(
            primitive.name, read, made, where, equation.params, effects=bool(equation.effects)
        )
        return made

    def _view(self, equation: Any, read: Sequence[Held], value: Any) -> State | None:
        """The state that a result shares with what was read: of the same elements."""
        name = equation.primitive.name
        told = read[0].told if read else None
        row = told.row if isinstance(told, State) else None
        if row is None or row.stride is None or not isinstance(told, State):
            return None
        if name == "transpose":
            order = equation.params["permutation"]
            stride = tuple(row.stride[axis] for axis in order)
        elif name in _SAME and row.stride == dense_strides(row.shape or ()):
            stride = dense_strides(value.shape)
        else:
            return None
        turned = stride != dense_strides(value.shape)
        digest = None if turned else row.digest
        return State(
            told.version,
            msgspec.structs.replace(row, shape=tuple(value.shape), stride=stride, digest=digest),
        )

    def _note(
        self,
        primitive: str,
        read: Sequence[Held],
        made: Sequence[Held],
        where: _Where,
        params: Mapping[str, Any],
        *,
        effects: bool = False,
    ) -> None:
        self.calls.append(
            Executed(
                primitive=primitive,
                read=tuple(each.told for each in read),
                made=tuple(each.told for each in made if isinstance(each.told, State)),
                params=_shown([each.told for each in read], params),
                scope=where.scope,
                frames=where.frames,
                effects=effects,
            )
        )

    # -- where it stands ---------------------------------------------------------------------------

    def _around(self, equation: Any, where: _Where) -> _Where:
        """Where an equation stands: its own frames go as far as the jitted function around it."""
        told = equation.source_info
        frames = self._frames_of(told.traceback) + where.outside
        scope = "/".join(filter(None, (where.scope, str(told.name_stack))))
        jitted = equation.primitive.name in _JITTED
        return _Where(scope, frames, frames if jitted else where.outside)

    def _frames_of(self, traceback: Any) -> tuple[str, ...]:
        """The frames of a traceback, innermost first, without JAX's own."""
        frames = self._frames.get(traceback)
        if frames is None:
            frames = self._frames[traceback] = tuple(
                f"{frame.file_name}:{frame.line_num} in {frame.function_name}"
                for frame in (traceback.frames if traceback is not None else ())
                if not inside(frame.file_name, _JAX) and not inside(frame.file_name, OPSCOPE)
            )
        return frames


def _atom(atom: Any, held: Mapping[Any, Held]) -> Held:
    """What an operand of an equation is: a variable, or a number that is written down."""
    if not hasattr(atom, "val"):
        return held[atom]
    return Held(atom.val, Written(_number(np.asarray(atom.val))))


def _number(value: Any) -> bool | int | float | str:
    if value.size != 1 or value.dtype.kind not in "biuf":
        return str(value)
    number = value.item()
    if isinstance(number, float) and not np.isfinite(number):
        return str(number)
    return float(str(value.reshape(())[()])) if value.dtype.kind == "f" else number


def _shown(read: Sequence[State | Written], params: Mapping[str, Any]) -> str:
    """Column args: what was read by its slots, numbers as they are, parameters by their names."""
    args = [
        each.number if isinstance(each, Written) else {"tensor": str(slot)}
        for slot, each in enumerate(read)
    ]
    named = {name: _plain(value) for name, value in params.items() if _is_plain(value)}
    text = msgspec.json.encode({"args": args, "kwargs": named}).decode()
    short = {"args": args, "kwargs": {}}
    return text if len(text) <= SHOWN else msgspec.json.encode(short).decode()


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str | np.number | np.dtype)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return list(map(_plain, value))
    if isinstance(value, np.number):
        value = value.item()
    if isinstance(value, np.dtype) or (isinstance(value, float) and not np.isfinite(value)):
        return str(value)
    return value
