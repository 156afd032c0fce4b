# SPDX-License-Identifier: Apache-2.0
"""Text of a run on a terminal: a run may hold any text, and a terminal obeys some."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from itertools import pairwise


def printable(text: str) -> str:
    """Text with control and formatting characters shown as escapes."""
    if text.isprintable():
        return text
    return "".join(
        _escaped(character) if unicodedata.category(character)[0] == "C" else character
        for character in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def number(value: float | str) -> str:
    """Three digits of a number, whole ones below a million exactly: `-310`, `65504`, `3.4e38`,
    `0.00123`, `inf`.
    """
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    mantissa, e, exponent = f"{value:.3g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def spans(numbers: Iterable[int]) -> list[str]:
    """Whole numbers, each once and in order, neighbours together: `0`, `2`, `14-21`."""
    ordered = sorted(set(numbers))
    cuts = [at for at, (left, right) in enumerate(pairwise(ordered), 1) if right != left + 1]
    parts = [ordered[start:stop] for start, stop in pairwise([0, *cuts, len(ordered)])]
    return [str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts if part]
