# SPDX-License-Identifier: Apache-2.0
"""Checking a table of a settings file against the keys it may have: types, choices, missing and
misspelt keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from opscope.formats.settings.problem import Problem
from opscope.run.printable import printable


def _integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_KINDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "integer": ("a whole number", _integer),
    "text": ("text", lambda value: isinstance(value, str)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "texts": (
        "a list of texts",
        lambda value: isinstance(value, list) and all(isinstance(part, str) for part in value),
    ),
    "integers": (
        "a list of whole numbers",
        lambda value: isinstance(value, list) and all(_integer(part) for part in value),
    ),
    "table": ("a table {…}", lambda value: isinstance(value, dict)),
    "tables": (
        "a list of tables",
        lambda value: isinstance(value, list) and all(isinstance(part, dict) for part in value),
    ),
    "any": ("anything", lambda value: True),  # noqa: ARG005 - one signature for all
}


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One key a table may have: its type, what it may be, whether the tool stops without it."""

    name: str
    kind: str
    choices: tuple[Any, ...] = ()
    least: int | None = None
    required: bool = False


def check_table(
    table: object, keys: Sequence[Key], *, at: str = "", elsewhere: Mapping[str, str] | None = None
) -> list[Problem]:
    """Remarks on one table; `at` is its place in the file, elsewhere names the tables of keys that
    stand in others.
    """
    if not isinstance(table, dict):
        return [Problem("error", at, f"is {_shown(table)}, a table {{…}} was expected")]
    known = {key.name: key for key in keys}
    problems: list[Problem] = []
    for name, value in table.items():
        key = known.get(name)
        home = (elsewhere or {}).get(name)
        if key is None and home is not None:
            problems.append(
                Problem(
                    "error",
                    _place(at, name),
                    f"stands in the wrong table, where it has no effect; it belongs into {home}",
                )
            )
        else:
            problems.extend(
                [_unknown(name, known, at)]
                if key is None
                else _check_value(value, key, _place(at, name))
            )
    problems.extend(
        Problem("error", _place(at, key.name), "is missing; the tool stops without it")
        for key in keys
        if key.required and key.name not in table
    )
    return problems


def nearest(word: str, known: Sequence[str]) -> str:
    """`; did you mean X?` for the nearest word, or the whole list where nothing is near."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = get_close_matches(word.lower(), by_lower, n=1)
    return (
        f"; did you mean {by_lower[near[0]]!r}?"
        if near
        else f"; there are {', '.join(map(repr, known))}"
    )


def _unknown(name: object, known: Mapping[str, Key], at: str) -> Problem:
    return Problem(
        "error",
        _place(at, str(name)),
        f"unknown key, which the tool passes over in silence{nearest(str(name), list(known))}",
    )


def _check_value(value: object, key: Key, at: str) -> list[Problem]:
    words, fits = _KINDS[key.kind]
    if not fits(value):
        return [Problem("error", at, f"is {_shown(value)}, {words} was expected")]
    if key.choices and value not in key.choices:
        hint = (
            nearest(value, [str(choice) for choice in key.choices])
            if isinstance(value, str)
            else ""
        )
        return [
            Problem(
                "error",
                at,
                f"is {_shown(value)}, not one of "
                f"{', '.join(map(str, key.choices))}{hint if '?' in hint else ''}",
            )
        ]
    if key.least is not None and isinstance(value, int) and value < key.least:
        return [Problem("error", at, f"is {value}, at least {key.least} was expected")]
    return []


def _place(at: str, name: str) -> str:
    name = printable(name)
    return f"{at}.{name}" if at else name


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
