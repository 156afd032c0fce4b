# SPDX-License-Identifier: Apache-2.0
"""What torch calls the arguments that its operators are given by their places."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files


def argument_name(op: str, position: int) -> str:
    """The name of the argument at a place of an operator of aten (`eps` of 7 in
    aten::native_batch_norm); "" where it is not known.
    """
    if not op.startswith("aten::"):
        return ""
    names = _shipped().get(op.removeprefix("aten::").removesuffix(".default"), ())
    return names[position] if 0 <= position < len(names) else ""


@cache
def _shipped() -> Mapping[str, tuple[str, ...]]:
    """The names by word or word.overload, as scripts/derive_operators.py wrote them."""
    path = files("opscope.operators").joinpath("data", "arguments", "aten.txt")
    lines = path.read_text(encoding="utf-8").splitlines()
    return {
        word: tuple(names)
        for word, *names in (line.split() for line in lines if not line.startswith("#"))
    }
