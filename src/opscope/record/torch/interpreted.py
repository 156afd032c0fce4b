# SPDX-License-Identifier: Apache-2.0
"""A captured graph, interpreted so that the recorder sees each operator where the program wrote
it: below frames of the lines, inside the modules that the graph was captured from.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from opscope.record.own_code import OPSCOPE, inside, is_user
from opscope.record.torch.dynamo import Captured
from opscope.record.torch.stacks import Places, frames_of

MOST_FRAMES = 64  # of the stack that a graph was called from
# operators of higher order that call the graph they are given first with all the rest
WRAPPING = frozenset({"wrap", "tag_activation_checkpoint", "wrap_activation_checkpoint"})


class Interpreted(torch.fx.Interpreter):
    """Runs the nodes of a captured graph; operators of higher order by their plain form.

    held: what the graph holds, by name, in the place of its own.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        graph: torch.fx.Graph,
        held: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(module, graph=graph)
        self._held = held or {}

    def fetch_attr(self, target: str) -> Any:
        """What the graph holds by this name."""
        return self._held[target] if target in self._held else super().fetch_attr(target)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function; one of higher order by its plain form, which calls the graphs that it
        was given one operator after the other.
        """
        plain = getattr(target, "py_kernels", {}).get(
            torch._C.DispatchKey.CompositeExplicitAutograd
        )
        if _is_wrapping(target):
            return self._interpreted(args[0])(*args[1:])
        if plain is None or hasattr(target, "_schema"):
            return super().call_function(target, args, kwargs)
        return under_modes(plain)(*(self._interpreted(each) for each in args), **kwargs)

    def _interpreted(self, value: Any) -> Any:
        """A graph among the arguments as a function that interprets it."""
        if isinstance(value, tuple):
            return tuple(map(self._interpreted, value))
        return self._function(value) if isinstance(value, torch.fx.GraphModule) else value

    def _function(self, graph: torch.fx.GraphModule) -> Callable[..., Any]:
        return Interpreted(graph, graph.graph).run


def under_modes(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A plain form of an operator of higher order that does not refuse to run below modes, as those
    of cond and scan do.
    """
    asks = "_get_current_dispatch_mode"
    if asks not in getattr(plain, "__globals__", {}):
        return plain
    made = FunctionType(
        plain.__code__, {**plain.__globals__, asks: _no_mode}, None, plain.__defaults__
    )
    made.__kwdefaults__ = plain.__kwdefaults__
    return made


def _no_mode() -> None:
    return None


def wraps(node: torch.fx.Node) -> bool:
    """Whether a node calls the graph that it is given first with all the rest."""
    return node.op == "call_function" and _is_wrapping(node.target)


def _is_wrapping(target: Any) -> bool:
    return getattr(target, "__name__", "") in WRAPPING and not hasattr(target, "_schema")


class Repeated(Interpreted):
    """Runs the nodes of a captured graph, each below the lines of the program and the modules that
    it was captured from, so that the recorder finds them on the stack.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        graph: torch.fx.Graph,
        book: Any,
        held: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(module, graph, held)
        self._book = book
        self._scopes: list[tuple[str, int]] = []

    def run(self, *given: Any, **options: Any) -> Any:
        """Run all nodes."""
        try:
            return super().run(*given, **options)
        finally:
            self._within([])

    def run_node(self, node: torch.fx.Node) -> Any:
        """Run one node."""
        if not node.op.startswith("call_"):
            return super().run_node(node)
        self._within(modules_of(node))
        return played(partial(super().run_node, node), frames_of(node))()

    def _function(self, graph: torch.fx.GraphModule) -> Callable[..., Any]:
        return Repeated(graph, graph.graph, self._book).run

    def _within(self, modules: Sequence[tuple[str, str]]) -> None:
        """Leave and enter modules until those are open that a node belongs to."""
        paths = [path for path, _ in modules]
        while self._scopes and [path for path, _ in self._scopes] != paths[: len(self._scopes)]:
            self._book.leave_scope(self._scopes.pop()[1], [])
        for path, kind in modules[len(self._scopes) :]:
            self._scopes.append((path, self._book.enter_scope("module", kind, path, [])))


def repeat(captured: Captured, book: Any, inputs: Sequence[Any]) -> Any:
    """Interpret a graph from all its inputs, what it holds first."""
    count = len(captured.held)
    held = dict(zip(captured.held, inputs[:count], strict=True))
    return Repeated(captured.module, captured.graph, book, held).run(*inputs[count:])


def modules_of(node: torch.fx.Node) -> list[tuple[str, str]]:
    """Path and class of the modules that a node belongs to, outermost first, the root left out."""
    modules = []
    for entry in (node.meta.get("nn_module_stack") or {}).values():
        path, kind = entry[0], entry[1]
        below = path_below_root(path)
        if below:
            name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
            modules.append((below, shortened(name)))
    return modules


def shortened(name: str) -> str:
    """torch.nn.Linear, as everybody calls torch.nn.modules.linear.Linear."""
    return f"torch.nn.{name.rpartition('.')[2]}" if name.startswith("torch.nn.") else name


def path_below_root(source: str) -> str:
    """`blocks.0.fc` of the `L['self']._modules['blocks'][0].fc` by which Dynamo knows a module."""
    words = re.findall(r"\w+", re.sub(r"_modules\b|getattr\b", "", source))
    return ".".join(words[2:]) if words[:1] in (["L"], ["G"]) else ".".join(words)


def calling_frames(*, users: bool = False) -> Places:
    """The lines under way in this thread, outermost first, opscope's own left out; users: only
    those of the user's own code.
    """
    lines: Places = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(lines) < MOST_FRAMES:
        file = frame.f_code.co_filename
        if not inside(file, OPSCOPE) and (is_user(file) or not users):
            lines.append((file, frame.f_lineno or 1, frame.f_code.co_name))
        frame = frame.f_back
    return lines[::-1]


def played(run: Callable[[], Any], frames: Places) -> Callable[[], Any]:
    """A function that runs another below frames of these places in the program, outermost first."""
    for file, line, name in reversed(frames):
        run = framed(run, file, line, name)
    return run


def framed(run: Callable[[], Any], file: str, line: int, name: str) -> Callable[[], Any]:
    """A function that runs another below a frame of that place in the program."""
    return partial(FunctionType(code_at(file, line, name), {}), run)


@lru_cache(maxsize=4096)
def code_at(file: str, line: int, name: str) -> CodeType:
    """Code that calls what it is given, and seems to stand in that line."""
    return _below.__code__.replace(co_filename=file, co_firstlineno=line - 1, co_name=name)


def _below(run: Callable[[], Any]) -> Any:
    return run()
