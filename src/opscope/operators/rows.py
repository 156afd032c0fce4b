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

from opscope.operators.traits import CHOICES, FLAGS, TEXTS

LONGEST = 200  # characters of a name
_LONGEST_TEXT = 2000
_SLOTS = re.compile(r"all|(?:\d{1,3}|kwargs\.\w{1,100})(?:,(?:\d{1,3}|kwargs\.\w{1,100}))*")
_WORD = re.compile(r"\w{1,100}")
_WORDS = frozenset({"kin", "same"})

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


def checked_row(traits: Mapping[str, object]) -> Row:
    """Traits that anybody may have written; ValueError for what is none, or cannot be one."""
    row: dict[str, bool | str] = {}
    for trait, held in traits.items():
        if (trait in FLAGS and isinstance(held, bool)) or (
            trait in TEXTS and isinstance(held, str) and held and _is_choice(trait, held)
        ):
            row[trait] = held
        elif trait in CHOICES:
            raise ValueError(f"{trait}={held!s:.40}: one of {', '.join(sorted(CHOICES[trait]))}")
        else:
            raise ValueError(f"{trait!s:.40}={held!s:.40} is no trait")
    return row


def checked_name(op: str) -> str:
    """The name of an operator that anybody may have written; ValueError for what cannot be one."""
    if not 0 < len(op) <= LONGEST or not op.isprintable() or any(each.isspace() for each in op):
        raise ValueError(f"{op[:40]!r} is no name of an operator")
    return op


def _is_choice(trait: str, text: str) -> bool:
    if trait in CHOICES:
        return text in CHOICES[trait]
    return (
        len(text) <= _LONGEST_TEXT
        and (_WORD if trait in _WORDS else _SLOTS).fullmatch(text) is not None
    )


def _row(traits: Iterable[str], where: str) -> Row:
    row: dict[str, bool | str] = {}
    for trait in traits:
        column, equals, text = trait.partition("=")
        bare = column.removeprefix("-")
        if bare in row or not ((equals and column in TEXTS) or (not equals and bare in FLAGS)):
            raise ValueError(f"{where}: {trait} is no trait, or stands there twice")
        row[bare] = text if equals else bare == column
    return row
