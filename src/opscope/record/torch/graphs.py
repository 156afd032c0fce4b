# SPDX-License-Identifier: Apache-2.0
"""Graphs that torch.compile made, as calls: one row for each execution, forward or backward, of any
back end.

The bookkeeper takes a graph for an operator whose inputs are the program's tensors and whose
outputs it reads. What generated code calls on the way is of the graph's own memory. A graph of
generated code is executed again, operator by operator, the first time and where it made something
that is not finite of sound inputs (again.py).
"""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.utils import _pytree as pytree

from opscope.kernels.calls import Operator
from opscope.operators.spelling import COMPILED
from opscope.record.active import active
from opscope.record.backend_rules import parse_backend_rules
from opscope.record.exits import restore
from opscope.record.torch.again import Again, Execution, untrained
from opscope.record.torch.aside import aside
from opscope.record.torch.backends import Backends, calling
from opscope.record.torch.compiled import MOST_NODES, CompiledCheck, described
from opscope.record.torch.device_graphs import CapturedWork, watch_device_graphs
from opscope.record.torch.dynamo import Captured, compiled_nodes, watch_backward, watch_compiler
from opscope.record.torch.imports import once_imported
from opscope.record.torch.sessions import Results, tensor_of, watch_sessions
from opscope.record.torch.uncompiled import leave_uncompiled
from opscope.run.contain import contain, tell

if TYPE_CHECKING:
    from opscope.record.session import Session

MOST_CALLS = 20_000  # of one graph that are named
UNWRAPPED = "_torchdynamo_orig_callable"  # what torch 2.4 calls in the place of what has it


class GraphOperator:
    """A graph as the bookkeeper's operator; what it calls is given for each execution."""

    def __init__(self, name: str, writes: frozenset[str], calls: Calls) -> None:
        self.operator = Operator(op=f"{COMPILED}{name}", short=name, writes=writes, graph=True)
        self._calls = calls

    def __call__(self, *given: Any) -> Any:
        """Execute it, for the bookkeeper."""
        return self._calls.execute(given)

    def suspected(self) -> None:
        """Its outputs hold what is not finite as no input did."""
        self._calls.running.suspected = True


class Running:
    """One execution on its way."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        self.execute = execute
        self.index = -1
        self.suspected = False


class Calls:
    """Executions of graphs, by thread."""

    def __init__(self, book: Any) -> None:
        self._book = book
        self._threads = threading.local()

    @property
    def running(self) -> Running:
        """The innermost of this thread."""
        innermost: Running = self._threads.stack[-1]
        return innermost

    @property
    def busy(self) -> bool:
        """Whether one is on its way in this thread."""
        return bool(getattr(self._threads, "stack", None))

    def execute(self, given: Sequence[Any]) -> Any:
        running = self.running
        running.index = self._book.open_calls()[-1][0]
        return (running.execute(*given),)  # their slots are not those of what is written to

    def make(self, operator: GraphOperator, given: tuple[Any, ...], running: Running) -> Any:
        """Make the call under the bookkeeper."""
        if not hasattr(self._threads, "stack"):
            self._threads.stack = []
        self._threads.stack.append(running)
        try:
            return self._book.dispatch(None, operator, (), given, None)[0]
        finally:
            self._threads.stack.pop()


class Graph:
    """One captured graph: makes its calls for the program."""

    def __init__(self, captured: Captured, compiled: Callable[..., Any], graphs: Graphs) -> None:
        self.captured, self.compiled, self.graphs = captured, compiled, graphs
        self.written = captured.written or frozenset()
        # AOTAutograd says nothing where its cache has the graph; then the first execution tells
        self.known = captured.written is not None
        self.backward = GraphOperator(captured.name, frozenset(), graphs.calls)
        self._forward: GraphOperator | None = None
        self._later: Graph | None = None

    @property
    def forward(self) -> GraphOperator:
        """Its operator; another one once more is known of what it writes to."""
        wanted = frozenset(str(number) for number in self.written)
        if self._forward is None or self._forward.operator.writes != wanted:
            self._forward = GraphOperator(self.captured.name, wanted, self.graphs.calls)
        return self._forward

    def inputs(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """All that it reads: what it holds, then what it is given."""
        return (*self.captured.attributes(), *given)

    def __call__(self, *given: Any) -> Any:
        """What the program calls in the place of the compiled function."""
        graph = self if self.graphs.watching else self._followed()
        return self.compiled(*given) if graph is None else graph.graphs.call(graph, given)

    def _followed(self) -> Graph | None:
        """The same for a recording that began after the one in which it was compiled had ended."""
        later = active.graphs
        if later is None or later is self.graphs or not later.watching:
            return None
        if self._later is None or self._later.graphs is not later:
            self._later = later.take(self.captured, self.compiled)
        return self._later


class Graphs:
    """Watches the compiler for one session."""

    def __init__(
        self,
        session: Session,
        book: Any,
        again: Again,
        check: CompiledCheck | None,
        *,
        enters: Callable[[object], None],
        unseen: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.session, self.book, self.again, self.check = session, book, again, check
        # told of each loaded model that is called, and around what it does
        self._enters, self._unseen = enters, unseen
        self.calls = Calls(book)
        leave_uncompiled(GraphOperator, Running, Calls, Graph, Graphs, run_backward)
        self._told = False
        # by the loaded model, which has no name of its own
        self._packages: weakref.WeakKeyDictionary[Any, GraphOperator] = weakref.WeakKeyDictionary()
        self._loaded = itertools.count()
        self._results = Results()
        self._taken = GraphOperator("from_session", frozenset(), self.calls)

    def watch(self) -> None:
        """See each graph that is compiled from now on, until the session ends."""
        active.graphs = self
        watch_compiler(self.session.cleanup, self)
        watch_packages(self.session.cleanup, self)
        watch_sessions(self.session.cleanup, self, self._results)
        watch_device_graphs(self.session.cleanup, self)

    def choose(self, name: str, own: Any) -> Any | None:
        """The back end that the recording's options give a graph, None for the program's own."""
        rules = self.session.config.backend
        return None if rules is None else Backends(parse_backend_rules(rules)).chosen(name, own)

    @property
    def watching(self) -> bool:
        return bool(
            self.book.active
            and not self.book.paused
            and not self.session.closed
            and not torch.compiler.is_compiling()
        )

    @property
    def captures(self) -> bool:
        return self.watching and not self.calls.busy

    def wrap(self, captured: Captured, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """What is called for a graph that was captured."""
        graph = self._noted(captured, compiled)

        def call_graph(*given: Any) -> Any:
            return graph(*given)

        facts = {**getattr(compiled, "__dict__", {})}
        facts.pop(UNWRAPPED, None)
        call_graph.__dict__.update(facts)
        leave_uncompiled(call_graph)
        return call_graph

    def take(self, captured: Captured, compiled: Callable[..., Any]) -> Graph | None:
        """A graph that was captured in an earlier recording, as one of this."""
        graph: Graph | None = self.contain(self._noted, captured, compiled)
        return graph

    def _noted(self, captured: Captured, compiled: Callable[..., Any]) -> Graph:
        self.session.note(
            "graphs",
            captured.name,
            {
                "operators": captured.operators,
                "backend": captured.backend,
                "frame": captured.frame,
                "reason": captured.reason,
                "ended": captured.ended,
                "broken": captured.broken,
                "seconds": captured.seconds,
                **(self._searched(captured) if self.session.config.backend else {}),
            },
        )
        return Graph(captured, compiled, self)

    @staticmethod
    def _searched(captured: Captured) -> dict[str, Any]:
        """What a search over nodes wants to know: what each calls, and those that another back end
        compiled than the graph's.
        """
        chosen = getattr(captured.compiler, "apart", ())[:MOST_NODES]
        calls = [described(node)["op"] for node in calling(captured.graph)[:MOST_CALLS]]
        return {
            "calls": calls,
            "apart": [{"place": number, **described(node)} for number, node in chosen],
        }

    def call(self, graph: Graph, given: tuple[Any, ...]) -> Any:
        """Execute a forward graph."""
        whole = self.contain(graph.inputs, given) or given
        execution = self.contain(self._before, graph, whole)

        def execute(*_: Any) -> Any:
            made = graph.compiled(*given)
            if execution is not None:
                self.contain(self._tell_written, execution, whole)
            return made

        running = Running(execute)
        result = self.calls.make(graph.forward, whole, running)
        if execution is not None:
            self.contain(self._after, graph, execution, running, whole, result)
        return result

    def call_package(self, model: object, given: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        """Make the call of a model that was compiled before, and loaded."""
        operator = self.contain(self._package, model, "package", "AOTInductor, loaded")
        if operator is None:
            return call()
        return self._native(operator, given, call, pytree.tree_leaves)

    def call_session(
        self, session: object, given: Mapping[str, Any], call: Callable[[], Any]
    ) -> Any:
        """Make a call of a session of ONNX Runtime."""
        operator = self.contain(self._package, session, "session", "ONNX Runtime")
        inputs = self.contain(lambda: [tensor_of(each) for each in given.values()])
        if operator is None or inputs is None:
            return call()
        return self._native(
            operator,
            tuple(inputs),
            call,
            lambda made: self.contain(self._session_made, session, made) or [],
        )

    def _session_made(self, session: object, made: Any) -> list[Any]:
        arrays = list(made) if isinstance(made, (list, tuple)) else [made]
        tensors = [tensor_of(each) for each in arrays]
        self._results.keep(session, arrays, tensors)
        return tensors

    def call_taken(self, made: torch.Tensor, call: Callable[[], Any]) -> Any:
        """Make the call that takes what a session made for a tensor of its own."""
        return self._native(self._taken, (made,), call, lambda taken: [taken])

    def call_replay(self, captured: CapturedWork, call: Callable[[], Any]) -> Any:
        """Make the call that replays what a device captured."""
        held = self.contain(captured.tensors)
        operator = self.contain(self._package, captured, "replay", "captured by the device")
        if held is None or operator is None:
            return call()
        tensors, read = held
        written = frozenset(str(number) for number in range(read, len(tensors)))
        if operator.operator.writes != written:
            operator = self._packages[captured] = GraphOperator(
                operator.operator.short, written, self.calls
            )
        return self._native(operator, tuple(tensors), call, lambda _: [])

    def _native(
        self,
        operator: GraphOperator,
        given: tuple[Any, ...],
        call: Callable[[], Any],
        outputs: Callable[[Any], list[Any]],
    ) -> Any:
        """Make the call of what native code computes unseen: what it gives the program, of which
        outputs says what is to be read.
        """
        made: list[Any] = []

        def execute(*_: Any) -> list[Any]:
            with self._unseen():
                made.append(call())
            return outputs(made[0])

        self.calls.make(operator, given, Running(execute))
        return made[0]

    def _package(self, model: object, kind: str, backend: str) -> GraphOperator:
        self._enters(model)
        if model not in self._packages:
            name = f"{kind}_{next(self._loaded)}"
            self.session.note("packages", name, {"backend": backend})
            self._packages[model] = GraphOperator(name, frozenset(), self.calls)
        return self._packages[model]

    def _before(self, graph: Graph, given: tuple[Any, ...]) -> Execution:
        with aside():
            places = graph.written if graph.known else untrained(given)
            return self.again.before(graph.captured, places, given)

    def _tell_written(self, execution: Execution, given: Sequence[Any]) -> None:
        """Tell the bookkeeper what a graph wrote to that is about to return."""
        moved = execution.moved(given)
        if moved:
            self.book.wrote([str(number) for number in sorted(moved)])

    def _after(
        self, graph: Graph, execution: Execution, running: Running, given: Any, result: Any
    ) -> None:
        execution.index = running.index
        moved = execution.moved(given)
        graph.written |= moved
        graph.known = graph.known or not any(
            isinstance(each, torch.Tensor) and each.is_inference() for each in given
        )
        if moved - execution.copies.keys():
            execution.refused = (
                execution.refused or "it wrote to inputs that nobody had said it writes to"
            )
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        for node in compiled_nodes(outputs):
            self.book.claim(node._sequence_nr())
            node.opscope = (weakref.ref(graph), execution)
            watch_backward(node._forward_cls, run_backward)
        if self.check is not None and self.check.wants(execution):
            self.check.forward(execution, given, result)
        if running.suspected:
            execution.unsound = True
            self.again.forward(execution, given)
        elif self.again.opens(graph.captured, given):
            self.again.open(execution, given)

    def backward(
        self,
        graph: Graph,
        execution: Execution,
        previous: Callable[..., Any],
        node: Any,
        given: list[Any],
    ) -> Any:
        """Execute a backward graph: given are the gradients, in one list that the graph empties
        where it frees them.
        """
        boxed = len(given) == 1 and isinstance(given[0], list)
        gradients = given[0] if boxed else given
        kept = self.contain(self.again.keep_gradients, execution, gradients)
        running = Running(lambda *_: previous(node, *given))
        shown = gradients if boxed else list(gradients)
        result = self.calls.make(graph.backward, (shown, execution.parameters()), running)
        if self.check is not None and execution.checked and kept:
            self.contain(self.check.backward, execution, running.index, kept, result)
        if execution.opened is not None and kept:
            self.contain(self.again.open_backward, execution, running.index, kept, result)
        elif running.suspected and not execution.unsound and kept is not None:
            self.contain(self.again.backward, execution, running.index, kept, result)
        if not keeps_graph():
            execution.forget()
        return result

    def contain(self, action: Callable[..., Any], *given: Any) -> Any:
        """What an action gives; None where it fails, which is said."""
        return contain(self.missed, action, *given)

    def missed(self, error: BaseException) -> None:
        """Go on without what failed, and say so."""
        self.session.missed("a compiled graph", error)

    def missing(self, why: str) -> None:
        """Say once that no graph is seen."""
        if not self._told:
            self._told = True
            tell(f"what torch.compile compiles is not recorded: {why}")


def keeps_graph() -> bool:
    """Whether the backward pass under way may be made again; so it is thought where torch does not
    tell (2.4).
    """
    tells = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return tells is None or bool(tells())


def run_backward(previous: Callable[..., Any], node: Any, given: list[Any]) -> Any:
    """Execute the backward of a graph for the recording in which its forward was executed."""
    graph_of, execution = getattr(node, "opscope", (lambda: None, None))
    graph = graph_of()
    if graph is None or not graph.graphs.watching:
        return previous(node, *given)
    return graph.graphs.backward(graph, execution, previous, node, given)


# Models that were exported and compiled before, and are loaded from a package (AOTInductor):
# each call is the call of a graph, of which nothing is known but what it is given and what it
# gives.
#
# Public names do not reach that call: it is a method of what `torch._inductor.aoti_load_package`
# gives (torch 2.13), so the class is watched.

MODULE = "torch.export.pt2_archive._package"
OWNER = "AOTICompiledModel"


class Watcher(Protocol):
    """Who makes the calls of loaded models."""

    @property
    def watching(self) -> bool: ...

    def call_package(self, model: object, given: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        """Make the call of a model with these inputs, flat; call gives its result."""
        ...


def watch_packages(stack: ExitStack, watcher: Watcher) -> None:
    """Have a watcher make the calls of loaded models from now on, until the stack is closed. What
    loads them is not loaded for it; a torch without the class has no such models.
    """

    def begin() -> None:
        owner = getattr(sys.modules[MODULE], OWNER, None)
        if owner is None:
            return
        previous = owner.__call__

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if not watcher.watching:
                return previous(self, *args, **kwargs)
            given = tuple(pytree.tree_leaves((args, kwargs)))
            return watcher.call_package(self, given, lambda: previous(self, *args, **kwargs))

        owner.__call__ = __call__
        stack.callback(restore, owner, "__call__", __call__, previous)

    once_imported(MODULE, begin, stack)
