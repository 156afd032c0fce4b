# SPDX-License-Identifier: Apache-2.0
"""A captured graph without the graphs within that are called as they are: the body of a checkpoint
stands where it was called.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.node import map_arg

from opscope.record.torch.interpreted import wraps


def inlined(module: torch.nn.Module, graph: torch.fx.Graph) -> torch.fx.Graph | None:
    """The graph with the nodes of those that its nodes wrap in their places; None where it wraps
    none. Placeholders and what it holds keep their names.
    """
    if not any(wraps(node) for node in graph.nodes):
        return None
    flat = torch.fx.Graph()
    flat.output(_put(flat, module, graph, "", None))
    return flat


def _put(
    flat: torch.fx.Graph,
    module: torch.nn.Module,
    graph: torch.fx.Graph,
    prefix: str,
    given: Sequence[Any] | None,
) -> Any:
    """Put the nodes of a graph, which stands below this prefix and is called with these nodes, at
    the end of another; what it gives.
    """
    made: dict[torch.fx.Node, Any] = {}
    operands = iter(given or ())
    for node in graph.nodes:
        if node.op == "output":
            return _mapped(node.args[0], made)
        if node.op == "placeholder" and given is not None:
            made[node] = next(operands)
        elif wraps(node):
            body, *rest = node.args
            inner: Any = module.get_submodule(body.target)
            made[node] = _put(
                flat, inner, inner.graph, f"{prefix}{body.target}.", _mapped(rest, made)
            )
        elif node.target is operator.getitem and isinstance(_whole(node, made), (tuple, list)):
            made[node] = _whole(node, made)[node.args[1]]
        else:
            made[node] = copy = flat.node_copy(node, made.__getitem__)
            if node.op == "get_attr":
                copy.target = prefix + node.target
    raise ValueError("a graph without an output")


def _whole(node: torch.fx.Node, made: dict[torch.fx.Node, Any]) -> Any:
    """What a node takes a part of."""
    return _mapped(node.args[0], made)


def _mapped(value: Any, made: dict[torch.fx.Node, Any]) -> Any:
    return map_arg(value, made.__getitem__)
