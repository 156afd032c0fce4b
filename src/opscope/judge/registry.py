# SPDX-License-Identifier: Apache-2.0
"""Rules by operator family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from opscope.operators.catalogue import family

Rule = TypeVar("Rule")


class Registry(Generic[Rule]):
    """One rule of a kind for each operator family; a second rule for a family is an error."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._rules: dict[str, Rule] = {}

    def of(self, *families: str) -> Callable[[Rule], Rule]:
        """Decorator: this function is the rule of these families."""

        def register(rule: Rule) -> Rule:
            for name in families:
                if name in self._rules:
                    raise ValueError(f"two {self._kind} rules for operator family {name!r}")
                self._rules[name] = rule
            return rule

        return register

    def find(self, op: str) -> Rule | None:
        """The rule of an operator; None where there is none."""
        return self._rules.get(family(op).removeprefix("_foreach_"))
