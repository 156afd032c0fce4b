# SPDX-License-Identifier: Apache-2.0
"""Rules of the command line that say which operators run on which substitute: `PATTERN=KIND`,
several parted by `;`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from opscope.errors import UsageError
from opscope.run.selection import Pattern, parse_pattern
from opscope.substitute.registry import kind_named


class Rule(msgspec.Struct, frozen=True):
    """Calls that match the pattern run on this kind of substitute, as registry.substitute_named
    reads it.
    """

    pattern: Pattern
    kind: str


def parse_rules(text: str) -> tuple[Rule, ...]:
    """The rules of a text; UsageError for one that cannot be read."""
    rules = []
    for part in filter(None, map(str.strip, text.split(";"))):
        pattern, equals, kind = part.rpartition("=")
        if not equals or not pattern.strip():
            raise UsageError(
                f"--substitute {part!r}: write PATTERN=KIND, such as 'aten::native_group_norm*=cpu'"
            )
        kind_named(kind)
        rules.append(Rule(parse_pattern(pattern.strip()), kind.strip()))
    if not rules:
        raise UsageError(
            "--substitute is empty: write PATTERN=KIND, such as 'aten::native_group_norm*=cpu'"
        )
    return tuple(rules)


def rule_for(rules: Sequence[Rule], op: str, module: str | None) -> Rule | None:
    """The first rule that a call matches."""
    return next((rule for rule in rules if rule.pattern.matches(op, None, module)), None)
