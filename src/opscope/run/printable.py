# SPDX-License-Identifier: Apache-2.0
"""Text of a run on a terminal: a run may hold any text, and a terminal obeys some."""

from __future__ import annotations

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
