# SPDX-License-Identifier: Apache-2.0
"""The entries of one dump.json, in the order they were entered, with their parents.

dump.json lists an entry when it is left, so a module stands after what ran in it. construct.json
says who enclosed whom; entries that were filtered out of the dump stand there too, and are passed
over. In newer dumps its values are [parent, micro step].
"""

from __future__ import annotations

from typing import Any

import msgspec

from opscope.formats.msprobe.names import EntryName, parse_name

_CHAIN_LIMIT = 500
OPTIMIZER = frozenset({"optimizer", "clip_grad"})


class Entry(msgspec.Struct, frozen=True):
    """One entry: its name taken apart, its body, the entry it ran in, and the names that enclose
    it, innermost first.
    """

    name: str
    parts: EntryName
    body: Any
    parent: str | None
    enclosing: tuple[str, ...] = ()


def read_construct(value: Any) -> dict[str, str | None]:
    """child -> parent out of construct.json, {} for anything else."""
    if not isinstance(value, dict):
        return {}
    parents: dict[str, str | None] = {}
    for child, parent in value.items():
        first = parent[0] if isinstance(parent, list) and parent else parent
        if first is None or isinstance(first, str):
            parents[child] = first
    return parents


def entries_of(data: dict[str, Any], parents: dict[str, str | None]) -> list[Entry]:
    """Entries in the order of entering; those whose name has no known shape are calls of their own
    name.
    """
    entries = {name: _entry(name, body, data, parents) for name, body in data.items()}
    order: dict[str, Entry] = {}
    for entry in entries.values():
        waiting = [name for name in entry.enclosing if name in entries and name not in order]
        for name in (*reversed(waiting), entry.name):
            order.setdefault(name, entries[name])
    return list(order.values())


def _entry(name: str, body: Any, data: dict[str, Any], parents: dict[str, str | None]) -> Entry:
    enclosing: list[str] = []
    above = parents.get(name)
    while above is not None and above not in enclosing and len(enclosing) < _CHAIN_LIMIT:
        enclosing.append(above)
        above = parents.get(above)
    parts = parse_name(name) or EntryName(
        "api", name.split(".", 1)[0][:200] or "unknown", None, "forward", 0
    )
    return Entry(
        name,
        parts,
        body,
        next((up for up in enclosing if up in data and up != name), None),
        tuple(enclosing),
    )


def phase_of(entry: Entry) -> str:
    """forward, backward, communication; recompute where the entry says so; optimizer for what ran
    in its step.
    """
    if isinstance(entry.body, dict) and entry.body.get("is_recompute") is True:
        return "recompute"
    if entry.parts.phase == "forward" and any(name in OPTIMIZER for name in entry.enclosing):
        return "optimizer"
    return entry.parts.phase


def module_of(entry: Entry, *, constructed: bool) -> str | None:
    """Path of the module: a module's own, for an API the innermost that encloses it, None where
    nothing says.
    """
    if entry.parts.module is not None:
        return entry.parts.module
    for name in entry.enclosing:
        above = parse_name(name)
        if above is not None and above.module is not None:
            return above.module
    return "" if constructed else None
