# SPDX-License-Identifier: Apache-2.0
"""Rules of the command line that say which backend compiles which graphs of torch.compile, or which
nodes of one: `GRAPH[/NODES]=BACKEND`, several parted by `;`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from opscope.errors import UsageError

WRITTEN = re.compile(r"\s*([^/=\s]+)(?:/([\d,\-\s]+))?\s*=\s*(\w+)\s*")
LONGEST = 1 << 20  # characters, and nodes of a graph


class BackendRule(msgspec.Struct, frozen=True):
    """Graphs whose name the glob matches are compiled by this backend; where spans are given, only
    the nodes that call something with these places, first and last included, and the program's own
    backend compiles what lies between.
    """

    graphs: str
    backend: str
    spans: tuple[tuple[int, int], ...] | None = None

    @property
    def places(self) -> frozenset[int] | None:
        """The nodes by their places, None for all."""
        if self.spans is None:
            return None
        return frozenset(node for first, last in self.spans for node in range(first, last + 1))


def parse_backend_rules(text: str) -> tuple[BackendRule, ...]:
    """The rules of a text; UsageError for one that cannot be read."""
    if len(text) > LONGEST:
        raise UsageError(f"--backend: {len(text)} characters; at most {LONGEST}")
    parts = [part for part in text.split(";") if part.strip()]
    if not parts:
        raise UsageError("--backend is empty: write GRAPH=BACKEND, such as 'graph_0_0=eager'")
    return tuple(map(_rule, parts))


def _rule(text: str) -> BackendRule:
    parts = WRITTEN.fullmatch(text)
    if parts is None:
        raise UsageError(
            f"--backend {text.strip()!r}: write GRAPH=BACKEND or GRAPH/NODES=BACKEND, such as "
            "'graph_0_0=eager' or 'graph_0_0/3-5,8=eager'"
        )
    spans = None if parts[2] is None else tuple(_span(part, text) for part in parts[2].split(","))
    return BackendRule(parts[1], parts[3], spans)


def _span(part: str, text: str) -> tuple[int, int]:
    first, _, last = part.strip().partition("-")
    if not first.isdecimal() or (last and not last.isdecimal()):
        raise UsageError(f"--backend {text.strip()!r}: {part.strip()!r} is no node, nor a span 3-5")
    span = int(first), int(last or first)
    if not span[0] <= span[1] < LONGEST:
        raise UsageError(f"--backend {text.strip()!r}: there are no nodes {part.strip()}")
    return span


def backend_rule_for(rules: Iterable[BackendRule], graph: str) -> BackendRule | None:
    """The first rule that matches a graph's name."""
    return next((rule for rule in rules if fnmatchcase(graph, rule.graphs)), None)
