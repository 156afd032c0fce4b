# SPDX-License-Identifier: Apache-2.0
"""Reads the catalogue's data: one operator a line, its word and its traits.

where             moves guards places
where.default     -moves          an overload; a minus takes a trait away
/.*loss.*/        tolerance=loss  a pattern: for every word that it matches and that has no such
                                  trait of its own
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from opscope.operators.traits import FLAGS, TEXTS

Row = Mapping[str, "bool | str"]


class Sheet(msgspec.Struct, frozen=True):
    """The rows of one file by word or word.overload, and its patterns in their order."""

    rows: Mapping[str, Row]
    patterns: tuple[tuple[re.Pattern[str], Row], ...]


def read_sheet(lines: Iterable[str], name: str) -> Sheet:
    """The rows of a file; a word that stands twice, and a trait that is none, raise ValueError."""
    rows: dict[str, Row] = {}
    patterns: list[tuple[re.Pattern[str], Row]] = []
    for number, line in enumerate(lines, 1):
        word, *traits = line.partition("#")[0].split() or [""]
        if word in rows:
            raise ValueError(f"{name}:{number}: {word} stands there twice")
        if word.startswith("/"):
            patterns.append((re.compile(word.strip("/")), _row(traits, f"{name}:{number}")))
        elif word:
            rows[word] = _row(traits, f"{name}:{number}")
    return Sheet(rows, tuple(patterns))


def _row(traits: Iterable[str], where: str) -> Row:
    row: dict[str, bool | str] = {}
    for trait in traits:
        column, equals, text = trait.partition("=")
        bare = column.removeprefix("-")
        if bare in row or not ((equals and column in TEXTS) or (not equals and bare in FLAGS)):
            raise ValueError(f"{where}: {trait} is no trait, or stands there twice")
        row[bare] = text if equals else bare == column
    return row
