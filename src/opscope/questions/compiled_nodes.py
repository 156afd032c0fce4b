# SPDX-License-Identifier: Apache-2.0
"""What a judgement of `opscope run --check` says of a compiled graph: which of its nodes deviate
when they alone are compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

MISMATCH = "compiled-mismatch"
DEVIATES = "compiled code gives other results than the graph's own operators"
_NAMED, _PLACES, _LENGTH = 5, 3, 400


def sample_of(text: str | None) -> dict[str, Any]:
    """What a judgement tells beyond its columns; nothing where that cannot be read."""
    try:
        sample = msgspec.json.decode(text or "null")
    except msgspec.DecodeError:
        return {}
    return sample if isinstance(sample, dict) else {}


def nodes_of(sample: str | None) -> list[dict[str, Any]]:
    """The nodes, each with its operator and, where they are known, line and module."""
    nodes = sample_of(sample).get("nodes")
    return [each for each in nodes if isinstance(each, dict)] if isinstance(nodes, list) else []


def node_words(nodes: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Which nodes they are, and where they come from."""
    if not nodes:
        return ()
    places = dict.fromkeys(str(each["source"]) for each in nodes if each.get("source"))
    names = ", ".join(str(each.get("op")) for each in nodes[:_NAMED])
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    at = f" at {', '.join(list(places)[:_PLACES])}" if places else ""
    return (f"so it is when only {names}{more}{at} are compiled"[:_LENGTH],)


def last_of(nodes: Sequence[dict[str, Any]], fact: str) -> str | None:
    """What is known of the node whose result is the deviating one."""
    return next((str(each[fact]) for each in reversed(nodes) if each.get(fact)), None)
