# SPDX-License-Identifier: Apache-2.0
"""What torch calls the arguments of its operators, in their order, and what they are where they are
left out.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


class Argument(msgspec.Struct, frozen=True):
    """An argument of an operator; default is JSON, "" where there is none."""

    name: str
    default: str = ""


def arguments_of(op: str) -> tuple[Argument, ...]:
    """The arguments of an operator of aten in their order; none where they are not known."""
    if not op.startswith("aten::"):
        return ()
    return _shipped().get(op.removeprefix("aten::").removesuffix(".default"), ())


@cache
def _shipped() -> Mapping[str, tuple[Argument, ...]]:
    """The arguments by word or word.overload, as scripts/derive_operators.py wrote them."""
    path = files("opscope.operators").joinpath("data", "arguments", "aten.txt")
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = (line.split() for line in lines if not line.startswith("#"))
    return {
        word: tuple(
            Argument(name, default) for name, _, default in (each.partition("=") for each in rest)
        )
        for word, *rest in rows
    }
