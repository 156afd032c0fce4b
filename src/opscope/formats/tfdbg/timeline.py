# SPDX-License-Identifier: Apache-2.0
"""What was executed, in order: calls, what they read and wrote, and the steps they belong to.

A graph's reads of variables, constants, placeholders and identities are no calls: what reads their
results reads what they hand on. What assigns to a variable has no output and so no trace; it is a
call all the same where its graph was executed, for TensorFlow executes it then, at the place at
which it was built. What it wrote is known once the variable is read again.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import msgspec

from opscope.formats.foreign import UNKNOWN
from opscope.formats.msprobe.stacks import user_line
from opscope.formats.tfdbg.events import Events, Execution, Op, Trace
from opscope.formats.tfdbg.graphs import (
    ALIASES,
    BACKWARD,
    CONSTANTS,
    FORWARD,
    GIVEN,
    OPTIMIZER,
    PIPELINE,
    READS,
    TAKEN,
    Static,
    assigns,
    is_parallel,
    is_view,
    own_frames,
    phase_of,
    producer,
    tape_frame,
)
from opscope.formats.tfdbg.tensors import Kept

Variable = int | tuple[str, str]  # its handle, or a graph and what that calls it
_LONGEST_CHAIN = 100  # of identities
UNTOLD = {"dtype": UNKNOWN}  # all that is known of a tensor that was not traced
TRACES, EXECUTIONS = "graph_execution_traces", "execution"  # files
_TELLING = 4  # equal contents of more elements are taken for one tensor that was passed


class State(msgspec.Struct, eq=False):
    """The state of a tensor, which rows of several calls may be of."""

    kept: Kept
    kind: str  # the file its values lie in
    version: int | None = None
    role: str | None = None
    name: str | None = None
    pending: bool = False  # what was written to a variable, and was not read since
    maker: Draft | None = None


class Draft(msgspec.Struct, eq=False):
    """A call before it has its number."""

    op: str
    name: str
    step: int
    phase: str
    frames: tuple[str, ...]
    module: str | None = None
    forward: Draft | None = None
    device: str | None = None
    inputs: list[tuple[str, State]] = []
    outputs: list[tuple[str, State]] = []

    @property
    def source(self) -> str | None:
        """The user's own line: of a gradient that of the forward call, unless the user's own code
        computes the gradient.
        """
        if self.phase != BACKWARD:
            return user_line(self.frames)
        tape = tape_frame(self.frames)
        inside = user_line(self.frames[:tape]) if tape is not None else None
        of_forward = self.forward.source if self.forward is not None else None
        return inside or of_forward or user_line(self.frames)


class _Running(msgspec.Struct):
    """One execution of a graph as it goes on: what was computed so far, and how far the
    assignments are.
    """

    states: dict[tuple[str, int], State] = {}
    untraced: dict[str, State] = {}  # by the name of the input
    drafts: dict[str, Draft] = {}
    assigned: int = 0
    step: int | None = None  # of a pipeline's pass, which other calls do not tell


class Timeline:
    """Calls of one process, from its events in the order of time."""

    def __init__(self, events: Events) -> None:
        self.drafts: list[Draft] = []
        self._events = events
        self._graphs: dict[str, Static] = {}
        self._running: dict[str, _Running] = {}
        self._eager: dict[int, State] = {}
        self._makers: dict[int, str] = {}  # phase of what made an eager tensor
        self._variables: dict[Variable, State] = {}
        self._handles = Handles(events)
        self._writer = ""  # the function that last wrote to a variable known by a graph alone
        self._contents: dict[int, State] = {}
        self._latest: dict[str, Draft] = {}
        self._passes: dict[tuple[str, int], _Running] = {}
        self._seen_before: dict[tuple[str, str, int], int] = {}
        self._version = 0
        self._parallel = any(is_parallel(each.type) for each in events.executions)
        self._steps = _Steps()
        self._calls: dict[str, deque[Execution]] = defaultdict(deque)  # of functions, to come
        for each in sorted(events.executions, key=lambda each: each.time):
            self._calls[each.graph].append(each)
        for event in self._in_time():
            if isinstance(event, Trace):
                self._trace(event)
            else:
                self._execution(event)
        for graph in list(self._running):
            self._end(graph)
        for draft in self.drafts:  # what a pipeline prepared for steps that did not come
            draft.step = min(draft.step, self._steps.number)
        self.drafts.sort(key=lambda draft: draft.step)

    def _in_time(self) -> Iterator[Trace | Execution]:
        events: list[Trace | Execution] = [*self._events.traces, *self._events.executions]
        return iter(sorted(events, key=lambda event: event.time))

    def _static(self, graph: str) -> Static:
        if graph not in self._graphs:
            self._graphs[graph] = Static(self._events, graph)
        return self._graphs[graph]

    def _state(self, tensor: Kept | None, kind: str, **more: Any) -> State:
        self._version += 1
        return State(tensor or Kept(UNTOLD), kind, self._version, **more)

    # -- graphs ------------------------------------------------------------------------------------

    def _trace(self, trace: Trace) -> None:
        static = self._static(trace.graph)
        op = static.ops.get(trace.op) or Op(name=trace.op, graph=trace.graph)
        if static.name.startswith(PIPELINE):
            if self._parallel:
                return
            self._computed(trace, op, static, self._pass(trace))
            return
        running = self._running.get(trace.graph)
        if running is not None and (trace.op, trace.slot) in running.states:
            self._end(trace.graph)
            running = None
            self._steps.again(trains=OPTIMIZER in static.phases.values())
        if running is None:
            running = self._begin(trace.graph)
        self._steps.enter(self._outermost(trace.graph))
        self._assign(trace.graph, before=static.place.get(trace.op, 0))
        self._computed(trace, op, static, running)

    def _pass(self, trace: Trace) -> _Running:
        """The pass of a pipeline that a trace is of, ahead of who reads it. Its number is the step.
        Of passes that run beside each other nobody can tell which is which: they are left out.
        """
        key = (trace.graph, trace.op, trace.slot)
        number = self._seen_before.get(key, 0)
        self._seen_before[key] = number + 1
        return self._passes.setdefault((trace.graph, number), _Running(step=number))

    def _begin(self, graph: str) -> _Running:
        """A graph is executed. What it wrote to variables that only it knows may be there no more,
        where another function has written since.
        """
        if self._writer not in ("", self._outermost(graph)):
            self._variables = {
                key: state
                for key, state in self._variables.items()
                if isinstance(key, int) or not state.pending
            }
        running = self._running[graph] = _Running()
        return running

    def _computed(self, trace: Trace, op: Op, static: Static, running: _Running) -> None:
        key = (op.name, trace.slot)
        if op.type in READS:
            running.states[key] = self._read(op, static, trace.tensor)
        elif op.type in CONSTANTS:
            running.states[key] = self._state(trace.tensor, TRACES, role="constant")
        elif op.type in GIVEN:
            running.states[key] = self._given(trace.tensor)
        elif op.type not in ALIASES:
            self._called(trace, op, static, running)

    def _called(self, trace: Trace, op: Op, static: Static, running: _Running) -> None:
        draft = running.drafts.get(op.name)
        if draft is None:
            draft = self._draft(op, static, running, trace.device)
        state = self._state(trace.tensor, TRACES)
        if is_view(op.type) and draft.inputs:
            _seen_as(draft.inputs[0][1], state)
        running.states[trace.op, trace.slot] = state
        state.maker = draft
        draft.outputs.append((str(trace.slot), state))
        self._remember(state)

    def _draft(self, op: Op, static: Static, running: _Running, device: str | None) -> Draft:
        phase = static.phases.get(op.name, FORWARD)
        forward = static.forward_of(op) if phase == BACKWARD else None
        of = self._latest.get(forward) if forward is not None else None
        draft = Draft(
            op=f"tf::{op.type or 'Unknown'}",
            name=op.name,
            step=self._steps.number if running.step is None else running.step,
            phase=phase,
            frames=static.frames.get(op.name, ()),
            module=static.module_of(op.name) if of is None else of.module,
            forward=of,
            device=device,
            inputs=[
                (str(slot), state)
                for slot, name in enumerate(op.inputs)
                if (state := self._input(name, op, static, running)) is not None
            ],
        )
        running.drafts[op.name] = draft
        self.drafts.append(draft)
        if phase != BACKWARD:
            self._latest[op.name] = draft
        if running.step is None:
            self._steps.saw(phase)
        return draft

    def _input(self, name: str, op: Op, static: Static, running: _Running) -> State | None:
        """The state that an input is of; None for a variable that is only named."""
        above = None
        for _ in range(_LONGEST_CHAIN):
            given, slot = producer(name)
            state = running.states.get((given, slot)) or running.untraced.get(name)
            if state is not None:
                return state
            above = static.ops.get(given)
            if above is None or above.type not in ALIASES or slot >= len(above.inputs):
                break
            name = above.inputs[slot]
        if above is not None and above.type in GIVEN:
            if self._is_variable(name, op, static):
                return self._variables.get(self._variable(op.graph, name, static))
            state = self._fed(above, static)
        else:
            state = _unknown(name)
        running.untraced[name] = state
        return state

    def _is_variable(self, name: str, op: Op, static: Static) -> bool:
        return self._variable(op.graph, name, static) in self._variables or (
            assigns(op.type) and op.inputs[:1] == (name,)
        )

    def _variable(self, graph: str, name: str, static: Static) -> Variable:
        """What a variable that a graph calls so is known by: the handle it was made with, where
        that is known.
        """
        handle = self._handles.of(graph, self._outermost(graph), static).get(name)
        return (graph, name) if handle is None else handle

    def _fed(self, placeholder: Op, static: Static) -> State:
        """What an argument of a function holds, which nobody traced: what the function is called
        with, or the next elements of a pipeline, in their order, where the graph around gets
        nothing else and nothing more.
        """
        return (
            self._called_with(placeholder, static)
            or self._next_elements(placeholder, static)
            or _unknown(placeholder.name)
        )

    def _called_with(self, placeholder: Op, static: Static) -> State | None:
        called = self._calls.get(placeholder.graph, ())
        names = [op.name for op in static.ops.values() if op.type in GIVEN]
        if not called or len(called[0].inputs) != len(names):
            return None
        return self._eager.get(called[0].inputs[names.index(placeholder.name)])

    def _next_elements(self, placeholder: Op, static: Static) -> State | None:
        graph = self._events.graphs.get(placeholder.graph)
        outer = self._running.get(graph.outer) if graph is not None else None
        if graph is None or outer is None:
            return None
        around = self._static(graph.outer)
        nexts = [op for op in around.ops.values() if op.type == "IteratorGetNext"]
        arguments = static.arguments
        if len(nexts) != 1 or len(arguments) != nexts[0].outputs:
            return None
        output = arguments.index(placeholder.name) if placeholder.name in arguments else -1
        return outer.states.get((nexts[0].name, output))

    def _given(self, tensor: Kept | None) -> State:
        """What a graph was handed: the latest result of the same content, if any."""
        known = self._passed(tensor)
        if known is not None and math.prod(known.kept.columns["shape"]) > _TELLING:
            return known
        return State(tensor or Kept(UNTOLD), TRACES)

    def _passed(self, tensor: Kept | None) -> State | None:
        return self._contents.get(tensor.content) if tensor and tensor.content is not None else None

    def _remember(self, state: State) -> None:
        if state.kept.content is not None:
            self._contents[state.kept.content] = state

    # -- variables ---------------------------------------------------------------------------------

    def _read(self, op: Op, static: Static, tensor: Kept | None) -> State:
        """The state of a variable that is read; what was written last, where it may be that."""
        given = op.inputs[0] if op.inputs else op.name
        key = self._variable(op.graph, given, static)
        state = self._seen(key, tensor, TRACES)
        state.role = static.roles.get(given, state.role)
        state.name = state.name or op.name.removesuffix("/ReadVariableOp")
        return state

    def _seen(self, key: Variable, tensor: Kept | None, kind: str) -> State:
        state = self._variables.get(key)
        if state is not None and state.pending and tensor is not None:
            state.kept, state.kind, state.pending = tensor, kind, False
        known = state is not None and (tensor is None or tensor.content == state.kept.content)
        if state is None or not known:
            old = state
            state = self._state(tensor, kind)
            if old is not None:
                state.role, state.name = old.role, old.name
            self._variables[key] = state
        return state

    def _assign(self, graph: str, before: int | None) -> None:
        """The assignments of a graph that were built before the operator at a place."""
        static, running = self._static(graph), self._running[graph]
        while running.assigned < len(static.assignments):
            op = static.assignments[running.assigned]
            if before is not None and static.place[op.name] > before:
                return
            running.assigned += 1
            draft = self._draft(op, static, running, None)
            if op.inputs:
                key = self._variable(graph, op.inputs[0], static)
                if not isinstance(key, int):
                    self._writer = self._outermost(graph)
                self._write(key, draft)

    def _write(self, key: Variable, draft: Draft) -> None:
        """A call wrote to a variable: what it was given, or what is not known until it is read."""
        old = self._variables.get(key)
        given = draft.inputs[-1][1] if draft.op == "tf::AssignVariableOp" and draft.inputs else None
        state = self._state(
            given.kept if given is not None else None,
            given.kind if given is not None else "",
            role=old.role if old is not None else None,
            name=old.name if old is not None else None,
            pending=given is None or given.kept.columns == UNTOLD,
            maker=draft,
        )
        self._variables[key] = state
        draft.outputs.append(("0", state))
        if old is not None and old.role == "parameter" and draft.phase == OPTIMIZER:
            _name_gradient(draft, old)

    def _end(self, graph: str) -> None:
        """An execution of a graph is over."""
        self._assign(graph, before=None)
        del self._running[graph]

    def _outermost(self, graph: str) -> str:
        """The function that was called eagerly for this graph to run."""
        for _ in range(_LONGEST_CHAIN):
            called = self._events.graphs.get(graph)
            outer = self._events.graphs.get(called.outer) if called is not None else None
            if outer is None or not outer.name:
                break
            graph = outer.id
        return graph

    # -- eager -------------------------------------------------------------------------------------

    def _execution(self, event: Execution) -> None:
        if event.graph:
            inside = [each for each in self._running if self._outermost(each) == event.graph]
            graphs = [self._tells(graph) for graph in inside]
            for graph in inside:
                self._end(graph)
            if not all(graphs):
                for number in event.inputs:
                    self._variables.pop(number, None)
            self._calls[event.graph].popleft()
            self._steps.leave(event.graph)
            return
        frames = own_frames(self._events.stack(event.stack))
        phase = phase_of(frames, event.type)
        read = {self._makers.get(each, FORWARD) for each in event.inputs}
        if phase == FORWARD and read & {BACKWARD, OPTIMIZER}:
            phase = OPTIMIZER
        self._makers |= dict.fromkeys(event.outputs, phase)
        states = self._results(event)
        if event.type in READS:
            key = event.inputs[0] if event.inputs else -1
            for number, tensor in states:
                self._eager[number] = self._seen(key, tensor, EXECUTIONS)
            return
        self._steps.eager(phase, writes=assigns(event.type))
        draft = Draft(
            op=f"tf::{event.type}",
            name=event.type,
            step=self._steps.number,
            phase=phase,
            frames=frames,
            inputs=[
                (str(slot), state)
                for slot, number in enumerate(event.inputs)
                if (state := self._operand(number)) is not None
            ],
        )
        for slot, (number, tensor) in enumerate(states):
            state = self._result(event, tensor)
            if is_view(event.type) and draft.inputs:
                _seen_as(draft.inputs[0][1], state)
            self._eager[number] = state
            state.maker = state.maker or draft
            draft.outputs.append((str(slot), state))
            self._remember(state)
        if assigns(event.type) and event.inputs:
            self._write(event.inputs[0], draft)
        self.drafts.append(draft)

    def _result(self, event: Execution, tensor: Kept | None) -> State:
        """What an execution gave; what it only took out of a container is what was put in."""
        known = self._passed(tensor) if event.type in TAKEN else None
        if known is not None:
            return known
        return self._state(tensor, EXECUTIONS)

    def _tells(self, graph: str) -> bool:
        """Whether it is known to which variables a graph wrote."""
        static = self._static(graph)
        return not static.assignments or bool(
            self._handles.of(graph, self._outermost(graph), static)
        )

    def _results(self, event: Execution) -> list[tuple[int, Kept | None]]:
        """Outputs of an execution, by the ids of its tensors; resources have no row."""
        if len(event.tensors) != len(event.outputs):
            return []
        return list(zip(event.outputs, event.tensors, strict=True))

    def _operand(self, number: int) -> State | None:
        return self._eager.get(number) or self._variables.get(number)


def _unknown(name: str) -> State:
    """A tensor of which the dump tells nothing but what it is called in its graph."""
    return State(Kept(UNTOLD), "", name=name)


def _seen_as(viewed: State, state: State) -> None:
    """Make a state that of the same elements under another shape."""
    state.version, state.role, state.name = viewed.version, viewed.role, viewed.name


def _name_gradient(update: Draft, parameter: State) -> None:
    """Give a gradient the name of its parameter: the one result of the backward pass, of the
    parameter's shape, that an update of it was computed from.
    """
    gradients: dict[int, State] = {}
    seen, left = {id(update)}, [update]
    while left:
        for _, state in left.pop().inputs:
            maker = state.maker
            if maker is None or id(maker) in seen:
                continue
            if maker.phase == BACKWARD:
                gradients[id(state)] = state
            elif maker.phase == OPTIMIZER and maker.step == update.step:
                seen.add(id(maker))
                left.append(maker)
    shape = parameter.kept.columns.get("shape")
    fit = [state for state in gradients.values() if state.kept.columns.get("shape") == shape]
    if len(fit) == 1 and fit[0].role is None:
        fit[0].role, fit[0].name = "gradient", parameter.name


class Handles:
    """Which eager tensor is the variable that a graph knows by the name of an argument.

    An execution of a function names its arguments and then what it captured, in the order in which
    the graph has them; those that a VarHandleOp made are variables. They are told apart only where
    a graph has as many arguments that are read or written as variables.
    """

    def __init__(self, events: Events) -> None:
        made = {
            number
            for each in events.executions
            if each.type == "VarHandleOp"
            for number in each.outputs
        }
        self._given: dict[str, set[tuple[int, ...]]] = {}
        for each in events.executions:
            if each.graph:
                handles = tuple(number for number in each.inputs if number in made)
                self._given.setdefault(each.graph, set()).add(handles)
        self._known: dict[str, dict[str, int]] = {}

    def of(self, graph: str, function: str, static: Static) -> dict[str, int]:
        """Handles by the names "argument:0" of a graph that ran for this function."""
        if graph not in self._known:
            given = self._given.get(function, set())
            handles = next(iter(given)) if len(given) == 1 else ()
            names = static.variables
            fits = len(names) == len(handles)
            self._known[graph] = dict(zip(names, handles, strict=True)) if fits else {}
        return self._known[graph]


class _Steps:
    """Counts steps: one ends after the optimizer's part that follows a backward pass, or where a
    function comes again that this step has executed.
    """

    def __init__(self) -> None:
        self.number = 0
        self._phases: set[str] = set()
        self._ran: set[str] = set()
        self._inside: str | None = None
        self._eager_update = False

    def enter(self, function: str) -> None:
        """An operator of this function, or inside of it, was executed."""
        if function == self._inside or not function:
            return
        self._inside = function
        if function in self._ran or self._trained:
            self._next()

    def again(self, *, trains: bool) -> None:
        """A graph came again before the function that it belongs to was left."""
        if trains and self._trained:
            self._next()

    def saw(self, phase: str) -> None:
        """An operator of this phase was executed."""
        self._phases.add(phase)

    def leave(self, function: str) -> None:
        """A function was left."""
        self._ran.add(function)
        self._inside = None

    def eager(self, phase: str, *, writes: bool) -> None:
        """An operator was executed eagerly. One behind a function that trained, of a metric say,
        begins no step.
        """
        if phase == FORWARD and self._eager_update and self._trained:
            self._next()
        self._phases.add(phase)
        self._eager_update |= writes and phase == OPTIMIZER

    @property
    def _trained(self) -> bool:
        return {BACKWARD, OPTIMIZER} <= self._phases

    def _next(self) -> None:
        self.number += 1
        self._phases.clear()
        self._ran.clear()
        self._eager_update = False
