# SPDX-License-Identifier: Apache-2.0
"""Where torch's compiler is heard: the one place that knows its inside.

Dynamo hands every graph that it captures to a back end in `OutputGraph.call_user_compiler`, on each
compilation, whatever the caches of FX graphs and of AOTAutograd hold, and calls what comes back
once for every execution. What AOTAutograd makes of it is a custom autograd function, whose class
has the backward graph. Public names do not reach either (torch 2.13).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol, TypeGuard

import msgspec
import torch

from opscope.record.exits import restore
from opscope.record.torch.imports import once_imported
from opscope.record.torch.uncompiled import leave_uncompiled

MODULE = "torch._dynamo.output_graph"
OWNER, HOOK = "OutputGraph", "call_user_compiler"
CALLBACKS, HANDLER, INSTALLS = "torch._dynamo.callback", "callback_handler", "install_callbacks"
UNGUARDED_FROM = (2, 13)  # and in 2.14; torch 2.4 compiles again, whatever its setting says
DEEPEST = 4  # views between an output and the node that made it


class Captured(msgspec.Struct, frozen=True):
    """A graph as it was captured and what is known of it.

    name: `graph_1_0`, of the first compilation of the second frame. held: names of the tensors that
    it holds itself, which are its inputs before those that it is given, as AOTAutograd has them.
    written: places of the inputs that it writes to, None where AOTAutograd did not say. reason: why
    it was compiled again; ended: why it ends where it does, a break of the graph among them.
    seconds: what the back end took. compiler: the back end, called with a graph and its inputs.
    made: bytes that its operators make, as far as Dynamo says.
    """

    name: str
    module: torch.fx.GraphModule
    graph: torch.fx.Graph
    backend: str
    frame: str
    held: tuple[str, ...]
    written: frozenset[int] | None
    reason: str | None
    ended: str | None
    broken: bool
    seconds: float
    compiler: Any = None
    made: int = 0

    def attributes(self) -> tuple[Any, ...]:
        """The tensors that it holds."""
        tensors = []
        for name in self.held:
            owner, _, own = name.rpartition(".")
            tensors.append(getattr(self.module.get_submodule(owner), own))
        return tuple(tensors)

    @property
    def operators(self) -> int:
        """How many calls the graph is made of."""
        return sum(node.op.startswith("call_") for node in self.graph.nodes)


class Watcher(Protocol):
    """Who is asked about each graph that is compiled."""

    def choose(self, name: str, own: Any) -> Any | None:
        """The back end for a graph in place of the program's, None for that one."""
        ...

    def wrap(self, captured: Captured, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """What is called for a graph."""
        ...

    def missing(self, why: str) -> object:
        """This torch has no such place."""
        ...

    def missed(self, error: BaseException) -> object:
        """An answer failed."""
        ...


def watch_compiler(stack: ExitStack, watcher: Watcher) -> None:
    """Have a watcher answer what compiles each graph and what is called for it from now on, until
    the stack is closed. The compiler is not loaded for it.
    """

    def begin() -> None:
        owner = getattr(sys.modules[MODULE], OWNER, None)
        previous = getattr(owner, HOOK, None)
        if owner is None or previous is None:
            watcher.missing(f"torch {torch.__version__} has no {MODULE}.{OWNER}.{HOOK}")
            return

        def call_user_compiler(output: Any, module: Any, *given: Any) -> Any:
            own = _attempted(watcher.missed, copied, module)
            made = _attempted(watcher.missed, bytes_made, module) or 0
            name = graph_name(output)
            chosen = _attempted(watcher.missed, watcher.choose, name, output.compiler_fn)
            begun = time.perf_counter()
            with _compiled_by(output, chosen):
                compiled = previous(output, module, *given)  # torch 2.4 asks for inputs later
            if own is None or getattr(output, "package", None) is not None:
                return compiled  # what is packed to be stored has to be the back end's own
            seconds = time.perf_counter() - begun
            captured = _attempted(watcher.missed, describe, output, module, own, seconds, chosen)
            if captured is not None:
                captured = msgspec.structs.replace(captured, made=made)
            return (
                compiled
                if captured is None
                else _attempted(watcher.missed, watcher.wrap, captured, compiled) or compiled
            )

        leave_uncompiled(call_user_compiler)
        owner.call_user_compiler = call_user_compiler
        stack.callback(restore, owner, HOOK, call_user_compiler, previous)

    once_imported(MODULE, begin, stack)


def surround_compilations(
    stack: ExitStack, around: Callable[[], AbstractContextManager[None]]
) -> None:
    """Have each compilation, from the first frame that Dynamo traces to a backward that is compiled
    late, run inside of such a block, until the stack is closed.

    Where guards look at hooks the compiled code would not fit what it is called in, and nothing is
    done.
    """

    def begin() -> None:
        handler: Any = getattr(sys.modules[CALLBACKS], HANDLER, None)
        previous = getattr(handler, INSTALLS, None)
        if previous is None or not _hooks_are_unguarded():
            return

        @contextmanager
        def install_callbacks(*given: Any) -> Iterator[None]:
            with around(), previous(*given):
                yield

        handler.install_callbacks = install_callbacks
        stack.callback(restore, handler, INSTALLS, install_callbacks, previous)

    once_imported(CALLBACKS, begin, stack)


def _hooks_are_unguarded() -> bool:
    from torch._dynamo import config

    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return version >= UNGUARDED_FROM and bool(config.skip_nnmodule_hook_guards)


def _attempted(
    failed: Callable[[BaseException], object], action: Callable[..., Any], *given: Any
) -> Any:
    try:
        return action(*given)
    except Exception as error:  # noqa: BLE001 - a compilation goes on without us
        failed(error)
        return None


@contextmanager
def _compiled_by(output: Any, chosen: Any | None) -> Iterator[None]:
    """A block in which a graph has another back end."""
    own = output.compiler_fn
    output.compiler_fn = chosen or own
    try:
        yield
    finally:
        output.compiler_fn = own


def graph_name(output: Any) -> str:
    """The graph under way by the number of its frame and of the frame's compilation."""
    identity = (
        getattr(output, "dynamo_compile_id", None)
        or torch._guards.CompileContext.current_compile_id()
    )
    return "graph_" + str(identity).replace("/", "_").lstrip("!")


def copied(module: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, torch.fx.Graph]:
    """The graph as it was captured, which a back end may change in place, with what tells where its
    nodes come from; and a module that holds what it names, graphs within copied likewise.
    """
    graph = torch.fx.Graph()
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    result = graph.graph_copy(module.graph, made)
    for node, copy in made.items():
        copy.meta = {
            key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta
        }
    graph.output(result)
    within = {name: each for name, each in module.named_children() if _is_graph(each)}
    if not within:
        return module, graph
    own = torch.fx.GraphModule(module, graph)
    for name in within.keys() & dict(own.named_children()):
        setattr(own, name, torch.fx.GraphModule(*copied(within[name])))
    return own, graph


def bytes_made(module: torch.nn.Module) -> int:
    """How many bytes the operators of a graph and of those within it make, by the examples that
    Dynamo leaves; a size that may change counts as it is now.
    """
    graphs = [each.graph for each in module.modules() if _is_graph(each)]
    made = [
        node.meta.get("example_value")
        for graph in graphs
        for node in graph.nodes
        if node.op.startswith("call_")
    ]
    tensors = [each for each in torch.utils._pytree.tree_leaves(made) if torch.is_tensor(each)]
    return sum(math.prod(map(_current, each.shape)) * each.element_size() for each in tensors)


def _current(size: Any) -> int:
    """A size as it is now; a symbolic one that is asked for its number would be guarded."""
    return size if isinstance(size, int) else int(getattr(size.node, "hint", None) or 1)


def _is_graph(module: torch.nn.Module) -> TypeGuard[torch.fx.GraphModule]:
    return isinstance(module, torch.fx.GraphModule)


def describe(
    output: Any,
    module: torch.fx.GraphModule,
    own: tuple[torch.fx.GraphModule, torch.fx.Graph],
    seconds: float,
    chosen: Any | None,
) -> Captured:
    """What Dynamo knows of a graph that has just been compiled, and was copied before; chosen:
    another back end than the program's.
    """
    frame = getattr(output, "co_fields", {})
    told = getattr(output, "compile_subgraph_reason", None)
    compiler = chosen or getattr(output, "compiler_fn", None)
    held = tuple(
        name
        for named in (module.named_parameters, module.named_buffers)
        for name, _ in named(remove_duplicate=False)
    )
    return Captured(
        name=graph_name(output),
        module=own[0],
        graph=own[1],
        backend=str(
            getattr(compiler, "compiler_name", None) or getattr(compiler, "__name__", compiler)
        ),
        frame=f"{frame.get('co_filename')}:{frame.get('co_firstlineno')} in {frame.get('co_name')}",
        held=held,
        written=written_places(own[1], len(held)),
        reason=recompilation(),
        ended=None if told is None else str(told.reason)[:500],
        broken=bool(getattr(told, "graph_break", False)),
        seconds=round(seconds, 3),
        compiler=compiler,
    )


def written_places(graph: torch.fx.Graph, held: int) -> frozenset[int] | None:
    """Places of the inputs that a graph writes to, by the metadata that AOTAutograd left for the
    compilation under way.
    """
    context = torch._guards.TracingContext.try_get()
    infos = getattr(getattr(context, "fw_metadata", None), "input_info", None)
    if infos is None:
        return None
    count = held + sum(node.op == "placeholder" for node in graph.nodes)
    if len(infos) < count:
        return None
    known = infos[len(infos) - count :]
    return frozenset(
        number for number, info in enumerate(known) if info.mutates_data or info.mutates_metadata
    )


def recompilation() -> str | None:
    """Why the frame under way is compiled again, None on its first compilation."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    context = utils.get_metrics_context() if hasattr(utils, "get_metrics_context") else None
    reason = getattr(context, "_metrics", {}).get("recompile_reason")
    return None if reason is None else str(reason)[:500]


def compiled_nodes(outputs: Sequence[Any]) -> Iterator[Any]:
    """The autograd nodes of a compiled graph from which these outputs come, behind views of
    them.
    """
    seen: set[int] = set()
    wanted: list[tuple[Any, int]] = [
        (output.grad_fn, 0)
        for output in outputs
        if isinstance(output, torch.Tensor) and output.grad_fn is not None
    ]
    while wanted:
        node, depth = wanted.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if is_compiled(getattr(node, "_forward_cls", None)):
            yield node
        elif depth < DEEPEST:
            wanted += [(before, depth + 1) for before, _ in node.next_functions]


def is_compiled(kind: Any) -> bool:
    """Whether a custom autograd function is what AOTAutograd makes of a graph."""
    return kind is not None and hasattr(kind, "compiled_bw") and hasattr(kind, "backward")


def watch_backward(kind: Any, run: Callable[[Callable[..., Any], Any, list[Any]], Any]) -> None:
    """Have `run(backward, node, arguments)` make every backward pass of a graph, once for a
    class.
    """
    previous = kind.backward
    if getattr(previous, "opscope", False):
        return

    def backward(node: Any, *given: Any) -> Any:
        return run(previous, node, list(given))

    backward.opscope = True  # type: ignore[attr-defined]
    leave_uncompiled(backward)
    kind.backward = staticmethod(backward)
