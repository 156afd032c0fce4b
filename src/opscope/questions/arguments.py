# SPDX-License-Identifier: Apache-2.0
"""How the scalar arguments of two calls differ, in words. Tensors, types and devices are no
arguments in this sense.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from opscope.operators.argument_names import argument_name

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
_DEPTH = 16


def difference(op: str, target: str | None, golden: str | None) -> str:
    """`argument 4 (eps) is 0.001, golden has 1e-05`: scalars that both sides give to an operator
    and that differ; "" when there are none.
    """
    if not target or not golden or target == golden:
        return ""
    try:
        mine, theirs = (
            dict(_scalars(msgspec.json.decode(text), "", 0)) for text in (target, golden)
        )
    except (msgspec.DecodeError, RecursionError, ValueError):
        return ""
    unlike = [
        f"argument {_named(op, name)} is {_given(mine, name)}, golden has {_given(theirs, name)}"
        for name in {**mine, **theirs}
        if _unlike(name, mine, theirs)
    ]
    return "; ".join(unlike[:_WORDS]) + ("; …" if len(unlike) > _WORDS else "")


def _named(op: str, slot: str) -> str:
    """An argument's place, and its name where that is known and the place does not say it."""
    first = slot.partition(".")[0]
    name = argument_name(op, int(first)) if first.isdecimal() else ""
    return f"{slot} ({name})" if name else slot


def _given(arguments: dict[str, Any], name: str) -> str:
    return _said(arguments[name]) if name in arguments else "its default"


def _unlike(name: str, mine: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether an argument differs; one that only one side gives counts unless it says nothing
    (None, False).
    """
    a, b = mine.get(name), theirs.get(name)
    if name not in mine or name not in theirs:
        return (a if name in mine else b) not in (None, False)
    if isinstance(a, float) and isinstance(b, float):
        return not (math.isclose(a, b, rel_tol=NEAR) or (math.isnan(a) and math.isnan(b)))
    return bool(a != b)


def _said(value: Any) -> str:
    text = "None" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _scalars(tree: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Leaves of an argument tree by their path, args. and kwargs. left out."""
    if depth > _DEPTH:
        return
    if isinstance(tree, dict):
        if len(tree) == 1 and next(iter(tree)) in _PLACES and depth > 1:
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
