# SPDX-License-Identifier: Apache-2.0
"""How the scalar arguments of two calls differ, in words. Tensors, types and devices are no
arguments in this sense.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from opscope.operators.argument_names import Argument, arguments_of

_PLACES = frozenset(
    {
        "random",
        "tensor",
        "dtype",
        "device",
        "layout",
        "memory_format",
        "generator",
        "object",
        "stream",
        "pin_memory",
        "group",
        "process_group",
    }
)
# Numbers nearer than this were computed alike, as a float32 that a program reads with item() is.
NEAR = 2.0**-20
_WORDS = 3
_TENSOR = object()  # stands for a tensor, whose number nobody knows here
_DIMENSION = re.compile(r"dims?\d?|axis\d?|(start|end)_dim")
_SHAPES_ALONE = frozenset({"keepdim"})  # change shapes, not values
_DEPTH = 16


def difference(
    op: str, target: str | None, golden: str | None, ranks: tuple[int, int] | None = None
) -> str:
    """`argument 4 (eps) is 0.001, golden has 1e-05`: scalars that both sides give to an operator
    and that differ; "" when there are none.

    How an argument is spelt does not matter: by its place or its name, as a default or left out, as
    a number or a tensor of one; nor whether what is summed keeps its dimension. ranks: how many
    dimensions the tensors of either call have at most, by which one that is counted from the end is
    one that is counted from the front; without them the two are not compared.
    """
    if not target or not golden or target == golden:
        return ""
    arguments = arguments_of(op)
    try:
        mine, theirs = (_by_name(msgspec.json.decode(text), arguments) for text in (target, golden))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return ""
    unlike = [
        f"argument {_shown(name, mine, theirs)} is {_given(mine, name)}, "
        f"golden has {_given(theirs, name)}"
        for name in {**mine, **theirs}
        if _unlike(name, mine, theirs, arguments, ranks)
    ]
    return "; ".join(unlike[:_WORDS]) + ("; …" if len(unlike) > _WORDS else "")


class _Given(NamedTuple):
    """A scalar and the place that it was given at; _TENSOR where a tensor is given."""

    value: Any
    slot: str


def _by_name(tree: Any, arguments: Sequence[Argument]) -> dict[str, _Given]:
    """The scalars of a call by the names of its arguments, else by their places."""
    given = {}
    for slot, value in _scalars(tree, "", 0):
        first, dot, rest = slot.partition(".")
        place = int(first) if first.isdecimal() else len(arguments)
        name = arguments[place].name if place < len(arguments) else first
        given[name + dot + rest] = _Given(value, slot)
    return given


def _shown(name: str, mine: dict[str, _Given], theirs: dict[str, _Given]) -> str:
    """An argument's place, and its name where that is known and the place does not say it."""
    slot = (mine.get(name) or theirs[name]).slot
    return slot if slot == name else f"{slot} ({name.partition('.')[0]})"


def _given(given: dict[str, _Given], name: str) -> str:
    return _said(given[name].value) if name in given else "its default"


def _unlike(
    name: str,
    mine: dict[str, _Given],
    theirs: dict[str, _Given],
    arguments: Sequence[Argument],
    ranks: tuple[int, int] | None,
) -> bool:
    """Whether an argument differs; one that only one side gives counts unless it is the default, or
    says nothing (None, False).
    """
    first = name.partition(".")[0]
    if first in _SHAPES_ALONE:
        return False
    if name not in mine or name not in theirs:
        value = (mine.get(name) or theirs[name]).value
        default = next((each.default for each in arguments if each.name == first), "")
        return value not in (None, False, _TENSOR) and not (
            default and _is_default(value, name, msgspec.json.decode(default))
        )
    a, b = mine[name].value, theirs[name].value
    if _TENSOR in (a, b):
        return False
    if isinstance(a, float) or isinstance(b, float):
        return not _near(a, b)
    return bool(a != b) and not (_DIMENSION.fullmatch(first) and _same_dimension(a, b, ranks))


def _near(a: Any, b: Any) -> bool:
    """Whether two numbers, of which one is a float, are the same."""
    numbers = (int, float)
    if isinstance(a, bool) or isinstance(b, bool) or not isinstance(a, numbers):
        return bool(a == b)
    if not isinstance(b, numbers):
        return False
    return math.isclose(a, b, rel_tol=NEAR) or (math.isnan(a) and math.isnan(b))


def _is_default(value: Any, name: str, default: Any) -> bool:
    """Whether a scalar, or an element of a list, is what the default has there."""
    place = name.rpartition(".")[2]
    if isinstance(default, list):
        if not place.isdecimal() or int(place) >= len(default):
            return False
        default = default[int(place)]
    return _near(value, default) if isinstance(default, float) else bool(value == default)


def _same_dimension(a: Any, b: Any, ranks: tuple[int, int] | None) -> bool:
    """Whether two numbers are one dimension, counted from the front or from the end."""
    if not isinstance(a, int) or not isinstance(b, int):
        return False
    if ranks is None:
        return (a < 0) != (b < 0)
    ends = [place if place < 0 else place - rank for place, rank in zip((a, b), ranks, strict=True)]
    return ends[0] == ends[1]


def _said(value: Any) -> str:
    text = "None" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _scalars(tree: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Leaves of an argument tree by their path, args. and kwargs. left out."""
    if depth > _DEPTH:
        return
    if isinstance(tree, dict):
        if len(tree) == 1 and next(iter(tree)) in _PLACES and depth > 1:
            if "tensor" in tree:
                yield path, _TENSOR
            return
        for name, value in tree.items():
            if name not in _PLACES:
                inner = (
                    ""
                    if depth == 0 and name in {"args", "kwargs"}
                    else f"{path}.{name}"
                    if path
                    else str(name)
                )
                yield from _scalars(value, inner, depth + 1)
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from _scalars(value, f"{path}.{number}" if path else str(number), depth + 1)
    else:
        yield path or "0", tree
