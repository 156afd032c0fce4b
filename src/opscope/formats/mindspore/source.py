# SPDX-License-Identifier: Apache-2.0
"""From a node's trace and name: the user's line, the stack, the module, the phase.

A trace may end at the line of a sibling of the same type after MindSpore's optimisation; the line
is reported as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from opscope.formats.mindspore.graph import Frame, Node
from opscope.formats.mindspore.names import split_number
from opscope.operators.catalogue import traits_of

_PACKAGE = re.compile(
    r"(?:^|/)(?:site|dist)-packages/(?:mindspore|torch|torch_npu)/|(?:^|/)mindspore/python/mindspore/"
)
_ROOTS = frozenset(
    {"Default", "Gradients", "Expand", "_Muls", "_Adds"}
)  # scopes that are no Cell's
_DEF = re.compile(r"(?:async\s+)?def\s+(\w+)")


def user_line(trace: tuple[Frame, ...]) -> str | None:
    """Innermost "path:line" outside of MindSpore's own package, None where there is none."""
    for frame in reversed(trace):
        if not frame.function and not _PACKAGE.search(frame.path):
            return f"{frame.path}:{frame.line}"
    return None


def stack_frames(trace: tuple[Frame, ...]) -> tuple[str, ...]:
    """The trace as frames of table stacks, innermost first: "path:42 in function"."""
    frames: list[str] = []
    function: Frame | None = None
    for frame in trace:
        if frame.function:
            function = frame
            continue
        text = f"{frame.path}:{frame.line}"
        if (
            function is not None
            and function.path == frame.path
            and function.line <= frame.line <= function.last
        ):
            named = _DEF.match(function.code)
            text += f" in {named[1]}" if named else ""
        if not frames or frames[-1] != text:
            frames.append(text)
    return tuple(reversed(frames))


def phase_of(op: str, name: str, node: Node | None) -> str:
    """Phase of a kernel by its name: Gradients/… backward, …optimizer-… optimizer, recompute where
    the name says so.
    """
    text = name.replace("/", "_")
    if traits_of(op.removeprefix("_")).collective:
        return "communication"
    if "recompute_" in text or (node is not None and node.node_attrs.get("duplicated") is True):
        return "recompute"
    if text.startswith("Gradients_") or "_Gradients_" in text[:40]:
        return "backward"
    if _in_optimizer(name):
        return "optimizer"
    return "backward" if node is not None and node.from_forward else "forward"


def updates_alone(nodes: Collection[Node]) -> bool:
    """Whether the nodes of a graph are those of an optimizer that is compiled by itself, which is
    in no scope of its own.
    """
    updates = any(traits_of(node.op).tolerance == "optimizer" for node in nodes)
    phases = (phase_of(node.op, node.name, node) for node in nodes if updates)
    return updates and all(phase in {"forward", "communication"} for phase in phases)


def _in_optimizer(name: str) -> bool:
    """Whether a scope is that of the optimizer, with its class behind it or,
    set_context(reserve_class_name_in_scope=False), without.
    """
    if "/" in name:
        return any(
            scope == "optimizer" or scope.startswith("optimizer-") for scope in name.split("/")[:-1]
        )
    return re.search(r"(?:^|_)optimizer-|^(?:Default_)?optimizer_", name) is not None


def module_of(name: str) -> str | None:
    """Path of the module from a full name:
    Default/network-WithLossCell/_backbone-Net/fc1-Dense/MatMul-op0 gives "network._backbone.fc1";
    None for the flat names of files, whose slashes are lost.
    """
    if "/" not in name:
        return None
    scopes = split_number(name)[0].split("/")[:-1]
    if any("-" in scope for scope in scopes):
        return ".".join(scope.rsplit("-", 1)[0] for scope in scopes if "-" in scope)
    return ".".join(
        scope for scope in scopes if scope not in _ROOTS and not scope.startswith("Grad_")
    )
