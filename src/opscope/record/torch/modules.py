# SPDX-License-Identifier: Apache-2.0
"""Which module is executing: paths of modules, found through torch's global forward hooks."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch


class Modules:
    """Paths of modules and names of their parameters and buffers; a module met first at the top is a root."""

    def __init__(self) -> None:
        self._paths: dict[int, tuple[weakref.ref[torch.nn.Module], str]] = {}
        self._names: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        self.buffers: list[tuple[torch.Tensor, str]] = []  # of roots learnt since the recorder asked last

    def path(self, module: torch.nn.Module, parent: torch.nn.Module | None, parent_path: str | None) -> str:
        """Path of a module that is being entered; the tree of an unknown root is learnt whole."""
        known = self._paths.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        if parent is None:
            self.learn(module)
            return ""
        name = next((name for name, child in parent.named_modules() if child is module), type(module).__name__)
        path = f"{parent_path}.{name}" if parent_path else name
        self._paths[id(module)] = (weakref.ref(module), path)
        return path

    def path_of(self, module: object) -> str | None:
        """Path of a module that was met; None for one that was not."""
        known = self._paths.get(id(module))
        return known[1] if known is not None and known[0]() is module else None

    def learn(self, root: torch.nn.Module) -> None:
        for path, module in root.named_modules():
            self._paths[id(module)] = (weakref.ref(module), path)
        for name, parameter in root.named_parameters():
            self._names[id(parameter)] = (weakref.ref(parameter), name)
        for name, buffer in root.named_buffers():
            self.buffers.append((buffer, name))

    def label(self, tensor: torch.Tensor) -> tuple[str | None, str | None]:
        """Role and name of a parameter, (None, None) for any other tensor."""
        if not isinstance(tensor, torch.nn.Parameter):
            return None, None
        known = self._names.get(id(tensor))
        return "parameter", known[1] if known is not None and known[0]() is tensor else None


def tensors_in(value: Any, slot: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of a nested argument with their slots."""
    if isinstance(value, torch.Tensor):
        yield slot, value
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from tensors_in(item, f"{slot}.{i}" if slot else str(i))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors_in(item, f"{slot}.{key}" if slot else str(key))


def result_tensors(result: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of a result; a lone one has slot 0."""
    yield from tensors_in(result, "0" if isinstance(result, torch.Tensor) else "")
