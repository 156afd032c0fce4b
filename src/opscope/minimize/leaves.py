# SPDX-License-Identifier: Apache-2.0
"""Plain numbers in an argument tree: where they are, and the same tree with others in their
place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]


def number_leaves(tree: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Paths and values of the booleans, integers and floats of a tree {"args": …, "kwargs": …}."""
    for number, node in enumerate(tree["args"]):
        yield from _numbers(node, ("args", number))
    for key, node in tree["kwargs"].items():
        yield from _numbers(node, ("kwargs", key))


def integer_leaves(tree: dict[str, Any]) -> list[tuple[Path, int]]:
    """The same for integers alone."""
    return [(path, value) for path, value in number_leaves(tree) if type(value) is int]


def replaced(tree: dict[str, Any], changes: Mapping[Path, Any]) -> dict[str, Any]:
    """The tree with other values at these paths."""
    return {
        "args": [
            _replaced(node, ("args", number), changes) for number, node in enumerate(tree["args"])
        ],
        "kwargs": {
            key: _replaced(node, ("kwargs", key), changes) for key, node in tree["kwargs"].items()
        },
    }


def _numbers(node: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(node, list):
        for number, item in enumerate(node):
            yield from _numbers(item, (*path, number))
    elif isinstance(node, (bool, int, float)):
        yield path, node


def _replaced(node: Any, path: Path, changes: Mapping[Path, Any]) -> Any:
    if isinstance(node, list):
        return [_replaced(item, (*path, number), changes) for number, item in enumerate(node)]
    return changes.get(path, node)
