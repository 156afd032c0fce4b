# SPDX-License-Identifier: Apache-2.0
"""The scalar arguments of a call, out of column args of table calls.

The column is `{"args": […], "kwargs": {…}}`; a tensor stands as {"tensor": SLOT}, a float that is
not finite as {"float": "-inf"}. Slots are "0", "1.0", "kwargs.value". A text that is not such a
tree has no scalars: it comes from a file.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import msgspec

_DEPTH = 8
_NON_FINITE = {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class Arguments(msgspec.Struct, frozen=True):
    """Scalars of one call by slot (numbers, not bools), in order, and the words that say its
    element types.
    """

    scalars: tuple[tuple[str, float | int], ...] = ()
    dtypes: tuple[tuple[str, str], ...] = ()

    def number(self, *slots: str) -> float | int | None:
        """The first of these slots that holds a number."""
        for slot, value in self.scalars:
            if slot in slots:
                return value
        return None

    def element(self, position: int) -> Arguments:
        """What the i-th call of an operator over lists sees: shared scalars, and of a scalar list
        its i-th.
        """
        kept = []
        for slot, value in self.scalars:
            head, dot, last = slot.rpartition(".")
            if not dot or head == "kwargs":
                kept.append((slot, value))
            elif last == str(position):
                kept.append((head, value))
        return Arguments(tuple(kept), self.dtypes)

    @property
    def places_negative_infinity(self) -> bool:
        return any(value == -math.inf for _, value in self.scalars)

    @property
    def places_positive_infinity(self) -> bool:
        return any(value == math.inf for _, value in self.scalars)

    @property
    def places_nan(self) -> bool:
        return any(math.isnan(value) for _, value in self.scalars)


NO_ARGUMENTS = Arguments()


@lru_cache(maxsize=4096)
def parse_arguments(text: str | None) -> Arguments:
    """Scalars of a call; empty for null, and for a text that is not an argument tree."""
    scalars: list[tuple[str, float | int]] = []
    dtypes: list[tuple[str, str]] = []
    positional, named = given_arguments(text)
    for i, value in enumerate(positional):
        _walk(value, str(i), (scalars, dtypes), _DEPTH)
    for key, value in named.items():
        _walk(value, f"kwargs.{key}", (scalars, dtypes), _DEPTH)
    return Arguments(tuple(scalars), tuple(dtypes))


def given_arguments(text: str | None) -> tuple[list[Any], dict[str, Any]]:
    """What a call was given by position and by name, as JSON has it; nothing for null, and for a
    text that is not an argument tree.
    """
    try:
        tree = msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, RecursionError, ValueError):
        tree = None
    positional, named = (
        (tree.get("args"), tree.get("kwargs")) if isinstance(tree, dict) else (None, None)
    )
    return (
        positional if isinstance(positional, list) else [],
        named if isinstance(named, dict) else {},
    )


def _walk(
    value: Any,
    slot: str,
    scalars_and_dtypes: tuple[list[tuple[str, float | int]], list[tuple[str, str]]],
    depth: int,
) -> None:
    if isinstance(value, bool) or depth == 0:
        return
    if isinstance(value, int | float):
        scalars_and_dtypes[0].append((slot, value))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _walk(item, f"{slot}.{i}", scalars_and_dtypes, depth - 1)
    elif isinstance(value, dict):
        text = value.get("float")
        if isinstance(text, str) and text.lower() in _NON_FINITE:
            scalars_and_dtypes[0].append((slot, _NON_FINITE[text.lower()]))
        elif isinstance(value.get("dtype"), str):
            scalars_and_dtypes[1].append((slot, value["dtype"]))
