# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a settings file, or merely without effect in it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """One remark about one key.

    severity is "error" (the tool would stop, or dump something else than asked) or "note" (the
    setting has no effect there). key is the path in the file, `common_dump_settings.iteration`;
    rule names the rule of the tool's manual it comes from.
    """

    severity: str
    key: str
    text: str
    rule: str = ""

    def line(self) -> str:
        """The remark as one line of text."""
        said = f"{self.key}: {self.text}" if self.key else self.text
        return f"{said} [{self.rule}]" if self.rule else said


def errors(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """The remarks that make a file unusable."""
    return tuple(problem for problem in problems if problem.severity == "error")


def notes(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """The remarks about what has no effect."""
    return tuple(problem for problem in problems if problem.severity == "note")
