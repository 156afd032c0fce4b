# SPDX-License-Identifier: Apache-2.0
"""Which module is executing: paths of modules, found through torch's global forward hooks."""

from __future__ import annotations

import functools
import sys
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules import module as module_hooks

DEEPEST = 32
GLOBAL_HOOKS = ("_global_forward", "_global_backward")
FORWARD_HOOKS = ("_global_forward_pre_hooks", "_global_forward_hooks")


@dataclass(frozen=True)
class _Root:
    """A model: paths of what it holds, and what it names itself, without a prefix: modules below
    it, its own parameters and buffers.
    """

    module: weakref.ref[torch.nn.Module]
    paths: dict[int, str]
    own: frozenset[str]


class Modules:
    """Paths of modules and names of their parameters and buffers; a module met first at the top is
    a root.

    A root that holds a path which another one holds too (a twin, a model that shares a part), or a
    parameter or buffer of that name, begins all of its paths with the name of its class, and a
    number from the second of the class on: `Net@2.fc`.
    """

    def __init__(self) -> None:
        self._roots: dict[int, _Root] = {}
        self._classes: Counter[str] = Counter()
        self._paths: dict[int, tuple[weakref.ref[torch.nn.Module], str]] = {}
        self._names: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        self._lent: set[int] = set()  # roots that were met with lent parameters
        self._unnamed = False  # whether a parameter without a name was met since roots were read
        # Buffers and shards with role and name, of roots learnt since the recorder asked last.
        self.memories: list[tuple[torch.Tensor, str, str]] = []
        self.learnt: list[weakref.ref[torch.nn.Module]] = []  # since the recorder asked last
        # those met below a model that does not hold them, since it asked last
        self.strangers: list[weakref.ref[torch.nn.Module]] = []

    def path(
        self,
        module: torch.nn.Module,
        parent: torch.nn.Module | None,
        parent_path: str | None,
        root: torch.nn.Module | None = None,
    ) -> str:
        """Path of a module that is being entered, below the outermost one; the tree of an unknown
        root is learnt whole.
        """
        within = self._root(root) if root is not None else None
        if within is not None and id(module) in within.paths:
            return within.paths[id(module)]
        known = self._paths.get(id(module))
        if known is not None and known[0]() is module:
            if parent is None:
                self._look_again(module)
            return known[1]
        if parent is None:
            return self.learn(module)
        name = next(
            (name for name, child in tree(parent) if child is module), type(module).__name__
        )
        path = f"{parent_path}.{name}" if parent_path else name
        self._paths[id(module)] = (weakref.ref(module), path)
        self.strangers.append(weakref.ref(module))
        return path

    def path_of(self, module: object) -> str | None:
        """Path of a module that was met; None for one that was not."""
        known = self._paths.get(id(module))
        return known[1] if known is not None and known[0]() is module else None

    def learn(self, root: torch.nn.Module) -> str:
        """Take in the tree of a root and return the root's own path, empty unless another root's
        paths would be the same.
        """
        modules = dict(tree(root))
        own = {path for path in modules if path}
        own.update(name for kind in ("_parameters", "_buffers") for name, _ in held(root, kind))
        self.learnt.append(weakref.ref(root))
        taken = {
            path
            for known in self._roots.values()
            if known.module() is not None
            for path in known.own
        }
        prefix = self._prefix(root) if taken & own else ""
        self._classes[type(root).__name__] += 1
        paths = {id(module): _below(prefix, path) for path, module in modules.items()}
        self._roots[id(root)] = _Root(weakref.ref(root), paths, frozenset(own))
        for module in modules.values():
            if not prefix or self.path_of(module) is None:
                self._paths[id(module)] = (weakref.ref(module), paths[id(module)])
        self._take_parameters(root, prefix)
        for name, buffer in named(root, "_buffers"):
            self.memories.append((buffer, "buffer", _below(prefix, name)))
        return prefix

    def _look_again(self, module: torch.nn.Module) -> None:
        """Take in parameters that a root holds by now: some were lent when it was read, or one
        without a name was met, as those are that replace a model's in the middle of a training.
        """
        root = self._root(module)
        if root is not None and (self._unnamed or id(module) in self._lent):
            self._take_parameters(module, root.paths[id(module)])
            self._unnamed = False

    def _take_parameters(self, root: torch.nn.Module, prefix: str) -> None:
        """Names of what a root has as parameters; it is looked at again where some are lent, as
        torch.func.functional_call lends tensors for one call.
        """
        self._lent.discard(id(root))
        for name, parameter in named(root, "_parameters"):
            if not isinstance(parameter, torch.nn.Parameter):
                self._lent.add(id(root))
            elif not prefix or self.label(parameter)[1] is None:
                self._names[id(parameter)] = (weakref.ref(parameter), _below(prefix, name))
                shard = shard_of(parameter)
                if shard is not None:
                    self.memories.append((shard, "shard", _below(prefix, name)))

    def _prefix(self, root: torch.nn.Module) -> str:
        name = type(root).__name__
        number = self._classes[name] + 1
        return name if number == 1 else f"{name}@{number}"

    def _root(self, module: torch.nn.Module) -> _Root | None:
        known = self._roots.get(id(module))
        return known if known is not None and known.module() is module else None

    def label(self, tensor: torch.Tensor) -> tuple[str | None, str | None]:
        """Role and name of a parameter, (None, None) for any other tensor."""
        if not isinstance(tensor, torch.nn.Parameter):
            return None, None
        known = self._names.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return "parameter", known[1]
        self._unnamed = True
        return "parameter", None

    def may_have_used(self, parameter: torch.Tensor) -> bool:
        """Whether a model that was called holds it; of a program that calls none nobody knows."""
        return not self._names or self.label(parameter)[1] is not None


@contextmanager
def uncounted(own: Callable[[], Iterable[int]]) -> Iterator[None]:
    """A block in which torch sees no global hook of modules where the own ones, given by their
    numbers, are all there are.

    It asks before it warns of what such hooks do to a compiled model.
    """
    genuine: Any = getattr(module_hooks, "_has_any_global_hook", None)
    if genuine is None:  # torch 2.4, which warns of nothing
        yield
        return

    @functools.wraps(genuine)
    def asked() -> bool:
        tables = [
            table
            for name, table in vars(module_hooks).items()
            if name.startswith(GLOBAL_HOOKS) and isinstance(table, dict)
        ]
        return bool({number for table in tables for number in table} - set(own()))

    module_hooks._has_any_global_hook = asked
    try:
        yield
    finally:
        if module_hooks._has_any_global_hook is asked:
            module_hooks._has_any_global_hook = genuine


@contextmanager
def no_global_hooks(own: Callable[[], Iterable[int]]) -> Iterator[None]:
    """A block in which torch finds no global forward hook of modules where the own ones, given by
    their numbers, are all there are.

    Dynamo traces what is called, hooks with it, and makes another graph then, which its caches do
    not hold. Tables are exchanged, not emptied: another thread may be reading them.
    """
    ours = set(own())
    tables = {
        name: table
        for name in FORWARD_HOOKS
        if (table := getattr(module_hooks, name, None)) and set(table) <= ours
    }
    for name in tables:
        setattr(module_hooks, name, OrderedDict())
    try:
        yield
    finally:
        for name, table in tables.items():
            table.update(getattr(module_hooks, name))
            setattr(module_hooks, name, table)


def distributed_tensor() -> Any:
    """The class DTensor where it is loaded, else None; torch 2.4 has it in a private module."""
    homes = (sys.modules.get(f"torch.distributed.{name}") for name in ("tensor", "_tensor"))
    classes = (getattr(home, "DTensor", None) for home in homes)
    return next(filter(None, classes), None)


def shard_of(parameter: torch.Tensor) -> torch.Tensor | None:
    """What this rank holds of a parameter that ranks share (a DTensor), as operators see it; None
    for any other.
    """
    distributed = distributed_tensor()
    if distributed is None or not isinstance(parameter, distributed):
        return None
    shard = parameter._local_tensor
    return shard if type(shard) is torch.Tensor and shard.numel() else None


def _below(prefix: str, path: str) -> str:
    return f"{prefix}.{path}" if prefix and path else prefix or path


def tree(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """A module and those below it with their paths, each once, as named_modules gives them where
    nobody redefines it.
    """
    met: set[int] = set()
    waiting = [("", root)]
    while waiting:
        path, module = waiting.pop()
        if id(module) not in met:
            met.add(id(module))
            yield path, module
            waiting += reversed(
                [(joined(path, name), child) for name, child in held(module, "_modules")]
            )


def held(module: torch.nn.Module, kind: str) -> list[tuple[str, Any]]:
    """What a module has of a kind (_modules, _parameters, _buffers), by name."""
    return [
        (name, each) for name, each in module.__dict__.get(kind, {}).items() if each is not None
    ]


def named(root: torch.nn.Module, kind: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters or buffers of a module and those below it with their names, each once."""
    met: set[int] = set()
    for path, module in tree(root):
        for name, each in held(module, kind):
            if id(each) not in met:
                met.add(id(each))
                yield joined(path, name), each


def joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def tensors_in(value: Any, slot: str, depth: int = DEEPEST) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of a nested argument with their slots, as far as a few levels down: a list may hold
    itself.

    Nothing of the program runs: its own kinds of lists and dictionaries are read as what they are
    beneath.
    """
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        yield slot, value
    elif depth and issubclass(kind, (list, tuple)):
        for i, item in enumerate(
            list.__iter__(value) if issubclass(kind, list) else tuple.__iter__(value)
        ):
            yield from tensors_in(item, joined(slot, str(i)), depth - 1)
    elif depth and issubclass(kind, dict):
        for key, item in dict.items(value):
            name = str(key) if type(key) in {str, int} else type(key).__name__
            yield from tensors_in(item, joined(slot, name), depth - 1)


def result_tensors(result: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of a result; a lone one has slot 0."""
    yield from tensors_in(result, "0" if issubclass(type(result), torch.Tensor) else "")
