# SPDX-License-Identifier: Apache-2.0
"""What is told of operators beside the shipped data, as a value: declared by the program or its
user, and recorded with a run; and the scope in which it counts.

The shipped data know whose word counts: what is declared overrules them, what a run brings only
fills what they leave open (operators.catalogue, which owns the one scope of a process).
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

    def declared_of(self, op: str) -> Row:
        """What is declared of an operator, by any of its spellings."""
        return _merged(self.declared, op)

    def recorded_of(self, op: str) -> Row:
        """What the run brings of an operator, by any of its spellings."""
        return _merged(self.recorded, op)


class Scope:
    """What is told at the moment, with the answers that hold as long as nothing else is told.

    Whoever asks a question of a run has the scope alone meanwhile: its answers, and those of the
    threads that work for it, are its own.
    """

    def __init__(self) -> None:
        self.told = Told()
        self._held = threading.RLock()
        self._answers: list[Callable[[], None]] = []

    def remembered(
        self, maxsize: int
    ) -> Callable[[Callable[Question, Answer]], Callable[Question, Answer]]:
        """As functools.lru_cache, for answers that hold until something else is told."""

        def around(function: Callable[Question, Answer]) -> Callable[Question, Answer]:
            answers = lru_cache(maxsize=maxsize)(function)
            self._answers.append(answers.cache_clear)
            return cast("Callable[Question, Answer]", answers)

        return around

    def declare(self, rows: Rows) -> None:
        """Have these rows count from now on; of an operator that is declared again, the last
        counts.
        """
        with self._held:
            self._tell(Told({**self.told.declared, **rows}, self.told.recorded))

    @contextmanager
    def knowing(
        self, *, declared: Rows | None = None, recorded: Rows | None = None
    ) -> Iterator[None]:
        """A block in which these rows count too; recorded ones take the place of another run's."""
        with self._held:
            before = self.told
            self._tell(
                Told(
                    {**before.declared, **(declared or {})},
                    before.recorded if recorded is None else recorded,
                )
            )
            try:
                yield
            finally:
                self._tell(before)

    def _tell(self, told: Told) -> None:
        if told != self.told:
            self.told = told
            for forget in self._answers:
                forget()


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
