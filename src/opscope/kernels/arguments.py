# SPDX-License-Identifier: Apache-2.0
"""Argument trees of calls: their tensors with slots, their scalars, and the whole as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Leaves(Protocol):
    """Tells tensors from other leaves, and writes those as JSON."""

    def is_tensor(self, value: object) -> bool: ...
    def encode(self, value: object) -> str: ...


class Tree:
    """Walks an argument tree: finds its tensors with their slots, and writes it as JSON with slots
    in their place.
    """

    def __init__(self, leaves: Leaves) -> None:
        self.leaves = leaves
        self.tensors: list[tuple[str, Any]] = []
        self.scalars: list[float] = []

    def encode(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        positional = ", ".join(self._encode(value, str(i)) for i, value in enumerate(args))
        named = ", ".join(
            f"{self.leaves.encode(key)}: {self._encode(value, f'kwargs.{key}')}"
            for key, value in kwargs.items()
        )
        return f'{{"args": [{positional}], "kwargs": {{{named}}}}}'

    def find(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
        for i, value in enumerate(args):
            self._find(value, str(i))
        for key, value in kwargs.items():
            self._find(value, f"kwargs.{key}")
        return self.tensors

    def find_result(self, result: Any) -> list[tuple[str, Any]]:
        if isinstance(result, (tuple, list)):
            return self.find(result, {})
        return self.find((result,), {})

    def _encode(self, value: Any, slot: str) -> str:
        if self.leaves.is_tensor(value):
            self.tensors.append((slot, value))
            return f'{{"tensor": "{slot}"}}'
        if isinstance(value, (list, tuple)):
            return (
                f"[{', '.join(self._encode(item, f'{slot}.{i}') for i, item in enumerate(value))}]"
            )
        if type(value) in {int, float}:
            self.scalars.append(float(value))
        return self.leaves.encode(value)

    def _find(self, value: Any, slot: str) -> None:
        if self.leaves.is_tensor(value):
            self.tensors.append((slot, value))
        elif isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                self._find(item, f"{slot}.{i}")
        elif isinstance(value, dict):
            for key, item in value.items():
                self._find(item, f"{slot}.{key}")
