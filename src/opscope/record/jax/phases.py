# SPDX-License-Identifier: Apache-2.0
"""Which part of a training each call of a primitive is of, by the names that JAX's transformations
leave and by the order of calls; and where a backward pass begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from opscope.operators.catalogue import traits_of
from opscope.operators.spelling import JAX
from opscope.record.jax.executed import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    RECOMPUTE,
    Executed,
    State,
)

BEGINNING = "ones_like"  # torch's word for the gradient of a loss by itself
_TRANSPOSED = re.compile(r"\btranspose\(")
_DERIVED = re.compile(r"\bjvp\(")
_AGAIN = "rematted_computation"
_NAME = re.compile(r"[\w\-]+")  # an einsum puts its formula on the stack
_WRAPPERS = re.compile(r"\w+\(|\)")


def module_of(scope: str) -> str:
    """The path of modules in a stack of names, without transformations."""
    parts = _WRAPPERS.sub("", scope).split("/")
    return ".".join(part for part in parts if _NAME.fullmatch(part) and part != _AGAIN)


def in_phases(calls: Iterable[Executed], *, graded: bool) -> list[Executed]:
    """The calls with their phases; graded: whether the function was given gradients. What no
    transformation made is of the forward pass until there are gradients, then of the optimizer.
    """
    phased = []
    for call in calls:
        if _TRANSPOSED.search(call.scope):
            phase = RECOMPUTE if _AGAIN in call.scope else BACKWARD
            graded = True
        elif _DERIVED.search(call.scope):
            phase = FORWARD
        else:
            phase = OPTIMIZER if graded else FORWARD
        phased.append(msgspec.structs.replace(call, phase=phase))
    return phased


def with_beginnings(
    calls: Sequence[Executed],
    begun: Iterable[State],
    results: Iterable[State],
    one: Callable[[State], State],
) -> list[Executed]:
    """The calls, and before each backward pass one that reads its loss, as torch has it; begun are
    the states that derivatives are taken by, one gives the number 1 beside a loss.
    """
    returned = {state.version for state in results}
    varying = {state.version for state in begun}
    ordered: list[Executed] = []
    losses: list[tuple[State, Executed]] = []
    last = FORWARD
    for call in calls:
        if call.phase in {BACKWARD, RECOMPUTE} and last not in {BACKWARD, RECOMPUTE}:
            loss = _loss(losses, call)
            if loss is not None:
                ordered.append(_beginning(loss, call, one(loss)))
            losses = []
        last = call.phase
        ordered.append(call)
        if call.phase == FORWARD:
            made = list(_varying(call, varying))
            varying.update(state.version for state in made)
            losses += [
                (each, call) for each in made if _is_number(each) and each.version in returned
            ]
    return ordered


def _beginning(loss: State, first: Executed, made: State) -> Executed:
    return Executed(
        primitive=BEGINNING,
        read=(loss,),
        made=(made,),
        params='{"args":[{"tensor":"0"}],"kwargs":{}}',
        scope=first.scope,
        frames=first.frames,
        phase=BACKWARD,
    )


def _varying(call: Executed, varying: set[int]) -> Iterator[State]:
    """What a call makes that has derivatives."""
    flat = traits_of(f"{JAX}::{call.primitive}").flat
    if flat or not any(state.version in varying for state in call.states()):
        return
    for state in call.made:
        if state.row is not None and "float" in state.row.dtype:
            yield state


def _is_number(state: State) -> bool:
    return state.row is not None and state.row.shape == ()


def _loss(losses: Sequence[tuple[State, Executed]], first: Executed) -> State | None:
    """Of numbers that the function returns the one whose line its backward pass begins with, else
    the last.
    """
    at = [state for state, call in losses if call.frames == first.frames]
    known = at or [state for state, _ in losses]
    return known[-1] if known else None
