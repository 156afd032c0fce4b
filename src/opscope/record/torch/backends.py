# SPDX-License-Identifier: Apache-2.0
"""`opscope run --backend`: graphs of torch.compile, or nodes of one, compiled by another backend
than the program's.

A graph of which only some nodes are chosen is parted where chosen and other nodes meet, in its own
order, so that what is written in place is read as before. A part is compiled at its first call,
from the tensors that it is then given, once for every kind of them.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.fx.passes.split_module import split_module

from opscope.errors import UnavailableError
from opscope.record.backend_rules import BackendRule, backend_rule_for
from opscope.run.contain import tell

Compiler = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]


class Backends:
    """Which compiler a graph gets, by the rules of a recording."""

    def __init__(self, rules: Sequence[BackendRule]) -> None:
        self._rules = rules

    def chosen(self, graph: str, own: Compiler) -> Compiler | None:
        """The compiler for a graph of this name, None for the program's own.

        Raises UnavailableError for a backend that torch does not have.
        """
        rule = backend_rule_for(self._rules, graph)
        if rule is None:
            return None
        from torch._dynamo.backends import registry

        if rule.backend not in registry.list_backends(exclude_tags=()):
            raise UnavailableError(f"torch has no backend {rule.backend!r}; {graph} keeps its own")
        backend = registry.lookup_backend(rule.backend)
        places = rule.places
        return backend if places is None else Parting(places, rule.backend, backend, own)


class Parting:
    """A compiler that gives chosen nodes to one backend and the others to another.

    apart: the nodes that it chose last.
    """

    def __init__(self, places: frozenset[int], name: str, chosen: Compiler, own: Compiler) -> None:
        self.places, self.chosen, self.own = places, chosen, own
        self.__name__ = f"{getattr(own, '__name__', own)}, {len(places)} nodes by {name}"
        self.apart: list[tuple[int, torch.fx.Node]] = []

    def __call__(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.apart = [
            (number, node)
            for number, node in enumerate(calling(module.graph))
            if number in self.places
        ]
        try:
            return self._parted(module)
        except Exception as error:  # noqa: BLE001 - a graph that torch cannot split runs as it is
            self.apart = []
            tell(f"--backend: a graph cannot be parted, and is compiled whole: {error}")
            return self.own(module, inputs)

    def _parted(self, module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        whole = torch.fx.GraphModule(module, _copied(module.graph))
        nodes = calling(whole.graph)
        if any(node.op == "call_module" for node in nodes):
            raise RuntimeError("modules are nodes of it, as torch 2.4 captures them")
        chosen = {node for at, node in enumerate(nodes) if at in self.places}
        for node in nodes:
            _spread(node, chosen)
        nodes = calling(whole.graph)
        numbers: list[int] = []
        sides: list[bool] = []  # of each part, whether it was chosen
        # Numbers of Python cost nothing, and a part that begins with a tensor's item cannot be
        # compiled.
        early = _moved_ahead(whole.graph, [node for node in nodes if _is_number(node)])
        for node in nodes:
            side = node in chosen or node in early
            if not sides or side is not sides[-1]:
                sides.append(side)
            numbers.append(len(sides) - 1)
        numbered = dict(zip(nodes, numbers, strict=True))
        parts = split_module(
            whole,
            torch.nn.Module(),
            lambda node: -1 if node in early else numbered[node],
            keep_original_order=True,
        )
        for number, side in enumerate(sides):
            name = f"submod_{number}"
            if hasattr(parts, name):
                compiler = self.chosen if side else self.own
                setattr(parts, name, Part(getattr(parts, name), compiler))
        return parts


class Part(torch.nn.Module):
    """A part of a graph, compiled once for each kind of inputs."""

    def __init__(self, module: torch.fx.GraphModule, compiler: Compiler) -> None:
        super().__init__()
        self.module, self.compiler = module, compiler
        self._compiled: dict[Any, Callable[..., Any]] = {}
        self._single = _gives_one(module.graph)
        module.recompile()

    def forward(self, *given: Any) -> Any:
        """The part's outputs."""
        kind = (torch.is_grad_enabled(), *map(_kind, given))
        if kind not in self._compiled:
            with warnings.catch_warnings():
                # a compiler looks at the gradient of each input, one inside of a graph is no leaf
                warnings.filterwarnings("ignore", "The .grad attribute of a Tensor")
                self._compiled[kind] = self.compiler(self.module, list(given))
        made = self._compiled[kind](*given)
        return made[0] if self._single else made


def _gives_one(graph: torch.fx.Graph) -> bool:
    """Whether a graph gave one value, not several; it gives a tuple of it then, as backends want
    it.
    """
    *_, output = graph.nodes
    single = not isinstance(output.args[0], (tuple, list))
    output.args = ((output.args[0],),) if single else output.args
    return single


def _kind(value: Any) -> Any:
    """What code compiled for one input depends on."""
    if not isinstance(value, torch.Tensor):
        return value
    where = value.dtype, value.device, value.requires_grad
    if value.layout is not torch.strided:
        return (*where, value.shape)
    return (*where, value.shape, value.stride())


def calling(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The nodes of a graph that call something, which places are counted by."""
    return [node for node in graph.nodes if node.op.startswith("call_")]


def _copied(graph: torch.fx.Graph) -> torch.fx.Graph:
    """A copy with what is known of its nodes; the original stays the program's."""
    made = torch.fx.Graph()
    made.output(made.graph_copy(graph, {}))
    return made


def _spread(node: torch.fx.Node, chosen: set[torch.fx.Node]) -> None:
    """Have only the items of a node that gives several values leave its part, where they are taken
    at once: no compiler takes a tuple for an input.
    """
    known = node.meta.get("example_value")
    if not isinstance(known, (tuple, list)):
        return
    taken = [
        user
        for user in node.users
        if user.target is operator.getitem and isinstance(user.args[1], int)
    ]
    items: list[torch.fx.Node] = []
    with node.graph.inserting_after(node):
        for item_number, value in reversed(list(enumerate(known))):
            items.insert(0, node.graph.call_function(operator.getitem, (node, item_number)))
            items[0].meta = {**node.meta, "example_value": value}
    for user in taken:
        user.replace_all_uses_with(items[cast(int, user.args[1])])
        node.graph.erase_node(user)

    def listed(each: torch.fx.Node) -> Any:
        return tuple(items) if each is node else each

    for user in [user for user in node.users if user not in items]:
        user.args = torch.fx.map_arg(user.args, listed)
        user.kwargs = torch.fx.map_arg(user.kwargs, listed)
    chosen.update(items if node in chosen else ())
    for item in items:
        _spread(item, chosen)


def _is_number(node: torch.fx.Node) -> bool:
    known = node.meta.get("example_value")
    return isinstance(known, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def _moved_ahead(
    graph: torch.fx.Graph, numbers: Sequence[torch.fx.Node]
) -> frozenset[torch.fx.Node]:
    """The numbers that follow from the graph's inputs alone, moved before all that computes; an
    input tensor that others read as well may have been written to before its item is taken.
    """
    moved: list[torch.fx.Node] = []
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for node in numbers:
        if inputs and all(
            each in moved or (each.op == "placeholder" and (_is_number(each) or _alone(each)))
            for each in node.all_input_nodes
        ):
            (moved or inputs)[-1].append(node)
            moved.append(node)
    return frozenset(moved)


def _alone(node: torch.fx.Node) -> bool:
    return len(node.users) == 1
