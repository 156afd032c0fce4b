# SPDX-License-Identifier: Apache-2.0
"""Answers every question about what an operator is, by its name alone.

A name is looked up in the sheet of its own world first: aten's `select` is a view, a graph's
`Select` chooses by a condition.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files

from opscope.operators.rows import Row, Sheet, read_sheet
from opscope.operators.spelling import (
    API,
    COLLECTIVE,
    DISPATCHER,
    GRAPH,
    overload_of,
    word_of,
    world_of,
)
from opscope.operators.traits import FLAGS, Traits

SHIPPED = ("aten", "api", "mindspore", "ge", "collectives")
# The last is what torch tells by itself, of words that no other sheet has.
SHEETS = (*SHIPPED, "torch")
# Sheets in which a name of each world is looked up before the others.
_OWN = {
    DISPATCHER: ("aten",),
    API: ("api",),
    GRAPH: ("mindspore", "ge"),
    COLLECTIVE: ("collectives",),
    "": (),
}
_ORDER = {world: tuple(dict.fromkeys((*own, *SHEETS))) for world, own in _OWN.items()}

# What holds with a trait unless a row takes it away.
_IMPLIED = {
    "view": ("moves", "silent", "idle"),
    "cast": ("idle",),
    "allocates": ("idle", "dropped"),
    "contraction": ("weighed",),
}


@cache
def sheet(name: str) -> Sheet:
    """The data of one world (aten, api, mindspore, ge), or the patterns that hold in all."""
    text = files("opscope.operators").joinpath("data", f"{name}.txt").read_text(encoding="utf-8")
    return read_sheet(text.splitlines(), f"{name}.txt")


@lru_cache(maxsize=8192)
def family(op: str) -> str:
    """The operator's bare word ("aten::log_.default", "torch.Tensor.log_", "LogV2" -> "log").

    Of a type of a graph it is torch's word, where torch has the same operator: "mm" of "MatMul".
    """
    word = word_of(op)
    return str(_find(GRAPH, word).get("same", word)) if world_of(op) == GRAPH else word


@lru_cache(maxsize=8192)
def traits_of(op: str) -> Traits:
    """What is known of an operator of any world; what nobody set is unset."""
    word, overload, world = family(op), overload_of(op), world_of(op)
    merged: dict[str, bool | str] = {}
    for row in (
        *_matching(word),
        _find(world, word),
        _find(world, f"{word}.{overload}") if overload else {},
    ):
        merged |= row
    for trait, implied in _IMPLIED.items():
        if merged.get(trait):
            merged = {**dict.fromkeys(implied, True), **merged}
    return Traits(**merged)  # type: ignore[arg-type]


@lru_cache(maxsize=8192)
def kin(op: str) -> str:
    """One word for what operators of different frameworks compute: family() tells spellings of one
    operator, this calls aten::addmm, MatMul and Dense one thing; its family where it has no kin.
    """
    return traits_of(op).kin or family(op)


@cache
def words_with(trait: str) -> frozenset[str]:
    """Every word whose row sets this flag."""
    if trait not in FLAGS:
        raise ValueError(f"{trait} is no flag of the catalogue")
    return frozenset(
        word
        for name in SHEETS
        for word, row in sheet(name).rows.items()
        if row.get(trait) and "." not in word
    )


def _find(world: str, word: str) -> Row:
    return next(
        (row for name in _ORDER[world] if (row := sheet(name).rows.get(word)) is not None), {}
    )


def _matching(word: str) -> Iterator[Row]:
    """Patterns that match, the first of them last: what it says counts."""
    return (
        row for pattern, row in reversed(sheet("patterns").patterns) if pattern.search(word.lower())
    )
