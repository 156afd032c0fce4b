# SPDX-License-Identifier: Apache-2.0
"""What is told of operators beside the shipped data: declared by the program or its user, for the
whole process, and recorded with a run, while a question is asked of it.

The shipped data know whose word counts: what is declared overrules them, what a run brings only
fills what they leave open (operators.catalogue).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import ParamSpec, TypeVar, cast

import msgspec

from opscope.operators.rows import Row

Answer = TypeVar("Answer")
Question = ParamSpec("Question")
Rows = Mapping[str, Row]


class Told(msgspec.Struct, frozen=True):
    """Rows by the operator's name as it is spelled, with or without its overload."""

    declared: Rows = {}
    recorded: Rows = {}


class _Board:
    """Where this process keeps it. Whoever asks a question of a run has it alone meanwhile: its
    answers, and those of the threads that work for it, are kept until something else is told.
    """

    def __init__(self) -> None:
        self.told = Told()
        self.held = threading.RLock()
        self._answers: list[Callable[[], None]] = []

    def put(self, told: Told) -> None:
        if told != self.told:
            self.told = told
            for forget in self._answers:
                forget()

    def forgets(self, forget: Callable[[], None]) -> None:
        self._answers.append(forget)


_BOARD = _Board()


def remembered(
    maxsize: int,
) -> Callable[[Callable[Question, Answer]], Callable[Question, Answer]]:
    """As functools.lru_cache, for answers that hold until something else is told of operators."""

    def around(function: Callable[Question, Answer]) -> Callable[Question, Answer]:
        answers = lru_cache(maxsize=maxsize)(function)
        _BOARD.forgets(answers.cache_clear)
        return cast("Callable[Question, Answer]", answers)

    return around


def told_of(op: str) -> tuple[Row, Row]:
    """What is declared of an operator and what the run brings, by any of its spellings."""
    told = _BOARD.told
    return _merged(told.declared, op), _merged(told.recorded, op)


def declare_rows(rows: Rows) -> None:
    """Have these rows count from now on; of an operator that is declared again, the last counts."""
    with _BOARD.held:
        told = _BOARD.told
        _BOARD.put(msgspec.structs.replace(told, declared={**told.declared, **rows}))


def declared_rows() -> Rows:
    """All that is declared in this process."""
    return _BOARD.told.declared


def declared_row(op: str) -> Row:
    """What is declared of an operator, by any of its spellings."""
    return _merged(_BOARD.told.declared, op)


@contextmanager
def knowing(*, declared: Rows | None = None, recorded: Rows | None = None) -> Iterator[None]:
    """A block in which these rows count too; recorded ones take the place of another run's."""
    with _BOARD.held:
        before = _BOARD.told
        _BOARD.put(
            Told(
                {**before.declared, **(declared or {})},
                before.recorded if recorded is None else recorded,
            )
        )
        try:
            yield
        finally:
            _BOARD.put(before)


def spellings(op: str) -> tuple[str, ...]:
    """The names that mean an operator, the most general first."""
    space, colons, rest = op.rpartition("::")
    if colons:
        short = rest.partition(".")[0]
        plain = short.removesuffix("_") if not short.endswith("__") else short
        names = (f"{space}::{plain}", f"{space}::{short}", op)
    else:
        last = op.rpartition("/")[2]
        names = (last.rpartition(".")[2], last, op)
    return tuple(dict.fromkeys(names))


def _merged(rows: Rows, op: str) -> Row:
    merged: dict[str, bool | str] = {}
    for name in spellings(op) if rows else ():
        merged |= rows.get(name, {})
    return merged
