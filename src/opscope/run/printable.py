# SPDX-License-Identifier: Apache-2.0
"""Text of a run on a terminal: a run may hold any text, and a terminal obeys some."""

from __future__ import annotations

import math
import unicodedata


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
