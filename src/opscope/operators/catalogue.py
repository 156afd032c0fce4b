# SPDX-License-Identifier: Apache-2.0
"""Answers every question about what an operator is, by its name alone.

A name is looked up in the sheet of its own world first: aten's `select` is a view, a graph's
`Select` chooses by a condition. What is declared overrules the sheets, what a run recorded fills
what they leave open (operators.told).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from opscope.operators.rows import Row, Sheet, read_sheet
from opscope.operators.spelling import (
    API,
    COLLECTIVE,
    DISPATCHER,
    GRAPH,
    JAX,
    NAMESPACED,
    ONNX,
    OWN,
    TENSORFLOW,
    in_place,
    namespace,
    overload_of,
    word_of,
    world_of,
)
from opscope.operators.told import Rows, Scope, Told
from opscope.operators.traits import Traits

# Every room asks by an operator's name alone, so what is told beside the shipped data has one owner
# in a process: this module. Nobody else holds the scope.
_SCOPE = Scope()
knowing, declare_rows, remembered = _SCOPE.knowing, _SCOPE.declare, _SCOPE.remembered

SHIPPED = ("aten", "api", "mindspore", "ge", "onnx", "jax", "tensorflow", "collectives")
# The last is what torch tells by itself, of words that no other sheet has.
SHEETS = (*SHIPPED, "torch")
# Sheets in which a name of each world is looked up before the others.
_OWN = {
    DISPATCHER: ("aten",),
    API: ("api",),
    GRAPH: ("mindspore", "ge"),
    ONNX: ("onnx", "ge", "mindspore"),
    JAX: ("jax",),
    TENSORFLOW: ("tensorflow", "ge", "mindspore"),
    COLLECTIVE: ("collectives",),
    "": (),
}
_ORDER = {world: tuple(dict.fromkeys((*own, *SHEETS))) for world, own in _OWN.items()}

# What a run may tell of an operator of torch itself that no sheet has: it takes no finding away,
# and is not worth a word where it does not count.
_HARMLESS = frozenset({"pointwise"})

# What holds with a trait unless a row takes it away.
_IMPLIED = {
    "view": ("moves", "silent", "idle"),
    "cast": ("idle",),
    "allocates": ("idle", "dropped"),
    "contraction": ("weighed", "saturates"),
}


@cache
def sheet(name: str) -> Sheet:
    """The data of one world (aten, api, mindspore, ge), or the patterns that hold in all."""
    text = files("opscope.operators").joinpath("data", f"{name}.txt").read_text(encoding="utf-8")
    return read_sheet(text.splitlines(), f"{name}.txt")


@remembered(8192)
def family(op: str) -> str:
    """The operator's bare word ("aten::log_.default", "torch.Tensor.log_", "LogV2" -> "log").

    Of a type of a graph, and of a primitive, it is torch's word, where torch has the same operator:
    "mm" of "MatMul".
    """
    return _family(op, _SCOPE.told)


def _family(op: str, told: Told) -> str:
    word, world = word_of(op), world_of(op)
    if world != GRAPH and world not in NAMESPACED:
        return word
    known = _find(world, word)
    row = {**(known or told.recorded_of(op)), **told.declared_of(op)}
    return str(row.get("same", word))


@remembered(8192)
def traits_of(op: str) -> Traits:
    """What is known of an operator of any world; what nobody set is unset."""
    return _traits(op, _SCOPE.told)


def _traits(op: str, told: Told) -> Traits:
    word, overload, world = _family(op, told), overload_of(op), world_of(op)
    recorded = told.recorded_of(op)
    taken = {trait: held for trait, held in recorded.items() if trait in _taken(op, recorded)}
    merged: dict[str, bool | str] = {}
    for row in (
        *_matching(word),
        taken,
        _find(world, word),
        _find(world, f"{word}.{overload}") if overload else {},
        told.declared_of(op),
    ):
        merged |= row
    for trait, implied in _IMPLIED.items():
        if merged.get(trait):
            merged = {**dict.fromkeys(implied, True), **merged}
    return Traits(**merged)  # type: ignore[arg-type]


def declared_rows() -> Rows:
    """All that is declared in this process."""
    return _SCOPE.told.declared


def declared_row(op: str) -> Row:
    """What is declared of an operator, by any of its spellings."""
    return _SCOPE.told.declared_of(op)


def is_shipped(op: str) -> bool:
    """Whether the shipped data answer for an operator: it is torch's own, or a sheet has it. That
    CANN has a Scale tells nothing of `mylib::scale`, which a library registered with torch.
    """
    sheets = _OWN[DISPATCHER] if world_of(op) == DISPATCHER else SHEETS
    word = word_of(op)
    return namespace(op) in {*NAMESPACED, *OWN} or any(word in sheet(name).rows for name in sheets)


def of_a_library(op: str) -> bool:
    """Whether an operator is registered with torch by somebody's library, whatever is known of
    it.
    """
    return bool(namespace(op)) and not is_shipped(op)


def is_unknown(op: str) -> bool:
    """Whether nothing at all is known of an operator of somebody's library."""
    return of_a_library(op) and traits_of(op) == Traits()


def works_in_place(op: str) -> bool:
    """Whether an operator writes to its first argument, by its name or by its schema."""
    return in_place(op) or "0" in traits_of(op).writes.split(",")


def disputed(op: str, row: Row) -> Row:
    """What a recorded row says of an operator that the shipped data answer for, and otherwise."""
    if not is_shipped(op):
        return {}
    known = _traits(op, Told(declared=_SCOPE.told.declared))
    taken = _taken(op, row)
    return {
        trait: held
        for trait, held in row.items()
        if trait not in taken
        and trait not in _HARMLESS | {"writes"}
        and getattr(known, trait) != held
    }


def _taken(op: str, recorded: Row) -> frozenset[str]:
    """Which of these traits count: none that could take away a finding of a shipped operator. A
    program's own primitive of JAX has no namespace of its own; it is what no sheet and no pattern
    knows.
    """
    if not is_shipped(op):
        return frozenset(recorded)
    word, world = word_of(op), world_of(op)
    if _find(world, word) or any(True for _ in _matching(word)):
        return frozenset()
    return frozenset(recorded) if world == JAX else frozenset(recorded) & _HARMLESS


@remembered(8192)
def kin(op: str) -> str:
    """One word for what operators of different frameworks compute: family() tells spellings of one
    operator, this calls aten::addmm, MatMul and Dense one thing; its family where it has no kin.
    """
    return traits_of(op).kin or family(op)


def _find(world: str, word: str) -> Row:
    return next(
        (row for name in _ORDER[world] if (row := sheet(name).rows.get(word)) is not None), {}
    )


def _matching(word: str) -> Iterator[Row]:
    """Patterns that match, the first of them last: what it says counts."""
    return (
        row for pattern, row in reversed(sheet("patterns").patterns) if pattern.search(word.lower())
    )
