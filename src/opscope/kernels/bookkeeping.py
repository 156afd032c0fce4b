# SPDX-License-Identifier: Apache-2.0
"""Bookkeeping of calls in plain Python: the reference of native/recorder.cpp, and what serves where
that is not compiled.

A framework's mode hands every operator call to `dispatch`, which runs it under observation. Every
tensor state gets a version, each version is read once, and finished rows of tables calls and
tensors wait until `take`. Nothing here knows
torch: all that is needed of a framework stands in `Binding`.

Identity of a version (docs/schema.md): the storage, how often that storage was written, and which
elements of it the tensor covers. Covering is independent of the order of dimensions, so a
transposed or reshaped view has its base's version, while a slice has its own. A storage is known by
its address, which is sound only while a weak reference holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from threading import get_ident
from time import monotonic, perf_counter
from typing import Any, Protocol

from opscope.kernels.arguments import Tree
from opscope.kernels.bounds import excluded
from opscope.kernels.calls import (
    Draft,
    Facts,
    Observed,
    Operator,
    Site,
    Storage,
    Version,
    accumulates_gradient,
    anomalous,
    covering,
    forget_oldest,
    head_of,
    is_integer,
    makes,
    offer,
    opened,
    unasked,
    written,
)
from opscope.kernels.flights import Flights
from opscope.kernels.nodes import Nodes
from opscope.kernels.staged import Keep, Staged

DUE_SECONDS = 0.5
MOST_REMEMBERED = (
    1 << 19
)  # forward calls of a step that gradients and recomputed calls are traced back to


class Binding(Protocol):
    """All that bookkeeping needs of a framework."""

    def is_tensor(self, value: object) -> bool: ...
    def facts(self, tensor: Any) -> Facts: ...
    def hold(self, tensor: Any) -> Any: ...
    def release(self, reference: Any) -> None: ...
    def expired(self, reference: Any) -> bool: ...
    def handles(self, types: Sequence[type]) -> Any: ...
    def surfaced(self, error: BaseException) -> str | None: ...
    def declined(
        self,
        mode: Any,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Any: ...
    def numbers(self, func: Any, args: Sequence[Any]) -> tuple[Any, ...]: ...
    def describe(self, func: Any) -> Operator: ...
    def target(self, func: Any) -> Any: ...
    def no_functions(self) -> Any: ...
    def straight(self, func: Any, args: Sequence[Any]) -> Any: ...
    def site(self) -> Site: ...
    def read(self, tensor: Any) -> Any: ...
    def resolved(self, tensor: Any) -> Any: ...
    def work_of(self, result: Any) -> Any: ...
    def whole(self, tensor: Any) -> bool: ...
    def graphs_ran(self) -> bool: ...
    def stage(self, tensor: Any) -> int: ...
    def offer(self, given: Sequence[tuple[int, Any]], made: bool) -> None: ...  # noqa: FBT001 - asked from C++ too
    def keep(self, tensor: Any) -> tuple[str, str] | None: ...
    def clone(self, tensor: Any) -> Any: ...
    def encode(self, value: object) -> str: ...
    def wanted(
        self,
        op: str,
        label: str,
        module: str,
        phase: str,
        accumulates: bool,  # noqa: FBT001 - called from C
        *others: str | None,
    ) -> bool: ...
    def label(self, tensor: Any) -> tuple[str | None, str | None]: ...
    def accumulates(self, node: Any, gradient: Any) -> str | None: ...
    def random_states(
        self, args: Sequence[Any], kwargs: dict[str, Any] | None
    ) -> dict[str, Any]: ...
    def keep_random(self, states: dict[str, Any], sealed: bool) -> str | None: ...  # noqa: FBT001 - asked from C++ too
    def judge_draft(self, draft: Draft) -> int | None: ...
    def suspected(self, func: Any) -> None: ...
    def running_node(self) -> Any: ...
    def next_sequence(self) -> int: ...
    def signal(self) -> None: ...
    def due(self) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def missed(self, op: str, error: BaseException) -> bool: ...
    def box_enter(self, box: Any, draft: Draft) -> None: ...
    def batches(
        self, drafts: list[Draft], *, process: int, rank: int, levels: int
    ) -> tuple[Any, Any]: ...


class Checker(Protocol):
    """Makes calls for the program and judges those whose turn it is.

    turn answers a tuple for a call that is not to be checked: for so many seconds or until sampling
    has taken so many (budget.sampled), and for so many calls, none of the same operator, shapes,
    strides, types and arguments will be. rested counts those that were made since the last time it
    was asked.
    """

    budget: Any

    def checks(self, func: Any) -> bool: ...
    def turn(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], rested: int = 0, /
    ) -> Any: ...
    def check(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], turn: Any, /
    ) -> Any: ...
    def call(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any: ...


class Recorder(Flights):
    """Versions, rows and names of the calls of one process; guarded by the GIL like the program it
    watches.

    active: calls are observed. paused: only the signs of steps are. backward_seen is set by calls
    of a backward pass, overflowed by calls with status bits; pending counts statistics that are
    still on a device; offered_from is the bytes from which on the binding is offered what a call
    that computes reads and makes on a device, 0: nothing is; watching is the seconds spent in
    observing, the calls themselves left out; rested counts calls of which the checker does not know
    yet; gave_up is the seconds after which a disk was found too slow for the black box, 0 if it was
    not.
    """

    binding: Binding
    rested = 0
    offered_from = 0
    gave_up = 0.0

    def __init__(
        self,
        binding: Binding,
        *,
        values: str = "anomaly",
        sample: int = 1,
        io: str = "both",
        selective: bool = False,
    ) -> None:
        self.binding = binding
        self.values = values
        self.sample = max(sample, 1)
        self.io = io
        self.selective = selective
        self.active = False
        self.paused = False
        self.step = 0
        self.watching = 0.0
        self.backward_seen = False
        self.overflowed = False
        self._next = {"index": 0, "version": 0, "storage": 0, "sampled": 0}
        self._storages: dict[int, Storage] = {}
        self._staged = Staged()
        self._operators: dict[Any, Operator] = {}
        self._open: dict[int, list[Draft]] = {}
        self._counts: dict[tuple[str, ...], int] = {}
        self._originals: dict[tuple[Any, ...], int] = {}
        self._nodes = Nodes()
        self._sequence: dict[int, int] = {}
        self._phases: dict[int, list[str]] = {}
        self._ended: dict[int, Draft] = {}  # the graph that ended last, by thread
        self._graphs: dict[int, int] = {}  # compiled graphs that are running, by thread
        self._due = 0.0
        self._box: Any = None
        self._checker: Checker | None = None
        Flights.__init__(self)
        self._fresh = False  # the call is one of compiled code: nothing that was read before holds

    # -- calls -------------------------------------------------------------------------------------

    def dispatch(
        self,
        mode: Any,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator under observation, for the mode that was asked; the binding is told
        where the watching fails.
        """
        kwargs, args = kwargs or {}, self.binding.numbers(func, args)
        handled = self._guarded(self.binding.handles, types) if self.active and types else True
        if handled is NotImplemented:
            return NotImplemented
        if handled is False:
            return self.binding.declined(mode, func, types, args, kwargs)
        if not self.active or self.paused or self._waiting.get(get_ident()):
            self._guarded(self._count, func)
            return self._call(func, args, kwargs)
        before = perf_counter()
        draft = self._attempted(func, self._enter, func, args, kwargs)
        if draft is None:
            return self._call(func, args, kwargs)
        begun = perf_counter()
        try:
            result = self._made(func, types, args, kwargs)
        except BaseException as error:
            self._attempted(
                func, self._leave, draft, None, f"{type(error).__name__}: {error}"[:4000]
            )
            raise
        ended = perf_counter()
        self._attempted(func, self._leave, draft, result, None)
        self.watching += begun - before + perf_counter() - ended
        return result

    def _made(
        self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        if self._checker is not None and not types:
            return self._checker.call(func, args, kwargs)
        return self._call(func, args, kwargs)

    def _call(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The call itself, unheard by the program's function modes and subclasses: Recorder::make
        of native/recorder.cpp.
        """
        straight = self._guarded(self.binding.straight, func, args)
        if straight is not None:
            return straight(*args, **kwargs)
        with self.binding.no_functions():
            return (self._guarded(self.binding.target, func) or func)(*args, **kwargs)

    def enter_scope(
        self, level: str, op: str, module: str, tensors: Iterable[tuple[str, Any]]
    ) -> int:
        """Begin a module or API call and return its index; its tensors reuse versions and are never
        read for it.
        """
        thread, site = get_ident(), self.binding.site()
        draft = self._draft(
            level,
            op,
            module,
            self._phase(thread, site, backward=self.binding.running_node() is not None),
        )
        draft.site = site
        self._name(draft)
        draft.inputs = [self._touch("input", slot, tensor) for slot, tensor in tensors]
        self._push(draft)
        return draft.index

    def leave_scope(
        self, index: int, tensors: Iterable[tuple[str, Any]], error: str | None = None
    ) -> None:
        """End a module or API call, and whatever inside it was never left."""
        stack = self._open.get(get_ident(), [])
        if all(draft.index != index for draft in stack):
            return
        while stack[-1].index != index:
            stack.pop()
        draft = stack[-1]
        self._pop(draft)
        draft.error = error
        draft.outputs = [self._touch("output", slot, tensor) for slot, tensor in tensors]
        self._finish(draft)

    def again(self, index: int, forward: int) -> None:
        """Calls of this thread execute the graph's call of that index again, -1: none. forward:
        that call or the one of its forward pass, whose autograd nodes they make or go through.
        """
        self._nodes.turn(index, forward)
        self._sequence[get_ident()] = self.binding.next_sequence()

    def forget_nodes(self, forward: int) -> None:
        """No backward pass goes through the nodes of this call any more."""
        self._nodes.forget(forward)

    def claim(self, node: int) -> None:
        """The autograd node of that number is of the graph that ended last in this thread,
        whichever call inside of it saw the node first.
        """
        self._nodes.claim(node, self._ended[get_ident()])

    def push_phase(self, phase: str) -> None:
        """Calls of this thread that are not backward belong to this phase, until pop_phase."""
        self._phases.setdefault(get_ident(), []).append(phase)

    def pop_phase(self) -> None:
        """End the phase that was pushed last."""
        stack = self._phases.get(get_ident())
        if stack:
            stack.pop()

    def open_calls(self) -> list[tuple[int, str]]:
        """(index, module) of calls that were entered and not left, outermost first, those of this
        thread last.
        """
        return opened(self._open, get_ident())

    # -- steps and rows ----------------------------------------------------------------------------

    def next_step(self) -> None:
        """Count one step; storages that died are forgotten, so that their addresses may be used
        again.
        """
        self.step += 1
        self.overflowed = False
        self._counts.clear()
        self._originals.clear()
        for address in [a for a, s in self._storages.items() if self.binding.expired(s.reference)]:
            self.binding.release(self._storages.pop(address).reference)
        self._nodes.keep_since(self.step - 2)

    def forget(self) -> None:
        """Drop every version, as when calls were made that nobody saw."""
        self._sequence[get_ident()] = self.binding.next_sequence()
        self._settle(everything=True)
        for storage in self._storages.values():
            storage.versions.clear()

    def take(self, process: int, rank: int, levels: int) -> tuple[Any, Any]:
        """Rows of finished calls and of their tensors as Arrow batches, None for none; levels is 1
        operator, 2 API, 4 module.
        """
        self._settle(everything=not self.active)
        ready, self._finished = self._finished, []
        self._nodes.keep(MOST_REMEMBERED)
        forget_oldest(self._originals, most=MOST_REMEMBERED)
        return self.binding.batches(ready, process=process, rank=rank, levels=levels)

    def close(self) -> None:
        """Let go of every storage."""
        self._settle(everything=True)
        for storage in self._storages.values():
            self.binding.release(storage.reference)
        self._storages.clear()

    def label(self, tensor: Any, role: str, name: str | None) -> None:
        """Say what a tensor is (parameter, buffer, gradient, …) and what its owner calls it."""
        storage = self._touch("input", "", tensor).storage
        if storage is not None:
            storage.role, storage.name = role, name

    @property
    def pending(self) -> int:
        return self._staged.pending

    def fetched(self, arrived: Sequence[tuple[int, Any]], keep: Keep) -> None:
        """Statistics of tensors that were staged on a device have arrived."""
        self.overflowed |= self._staged.fetched(arrived, self._finished, keep)

    def attach(self, box: Any) -> None:
        """Write calls into a black box from now on, a run.store.blackbox.BlackBox, or into none."""
        self._box = box

    def check_with(self, checker: Checker | None) -> None:
        """Let a checker make the calls from now on, None for nobody."""
        self._checker = checker

    def use_threads(self, threads: int, openmp: str) -> None:
        """Nothing to do: NumPy's passes run on the calling thread."""

    # -- one operator call -------------------------------------------------------------------------

    def _guarded(self, action: Any, *arguments: Any) -> Any:
        try:
            return action(*arguments)
        except BaseException as error:  # noqa: BLE001 - the recording boundary: binding.fail raises what is the program's own
            self.active = False
            self.binding.fail(error)
            return None

    def _attempted(self, func: Any, action: Any, *arguments: Any) -> Any:
        """Do a part of the watching of one call; where that fails the call is missed, and nothing
        is known of tensors any more.
        """
        try:
            return action(*arguments)
        except BaseException as error:  # noqa: BLE001 - the recording boundary: the binding raises what is the program's own
            self._guarded(self.forget)
            self.active = self.binding.missed(str(func), error)
            return None

    def _operator(self, func: Any) -> Operator:
        operator = self._operators.get(func)
        if operator is None:
            operator = self._operators[func] = self.binding.describe(func)
        return operator

    def _count(self, func: Any) -> None:
        if self.active:
            self.backward_seen = self.backward_seen or self.binding.running_node() is not None
            if self._operator(func).signal:
                self.binding.signal()

    def _enter(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Draft | None:
        operator = self._operator(func)
        if operator.hidden:
            return None
        draft, node = self._place(operator, self.binding.site())
        draft.selected = not self.selective or self._selects(draft, node)
        tree = Tree(self.binding)
        draft.args = tree.encode(args, kwargs)
        if draft.selected:
            self._name(draft)
            draft.sampled = (
                self.values == "sample"
                and not operator.graph
                and self._count_up("sampled") % self.sample == 0
            )
            self._fresh = draft.site is not None and draft.site.compiled
            for slot, tensor in tree.tensors:
                seen = self._observe(
                    "input", slot, tensor, readable=head_of(slot) not in operator.filled
                )
                draft.inputs += [seen, *self._parts(seen)]
            self._label_gradient(draft, node)
            self._guard(draft, operator, tree.scalars)
            if operator.random and self.values != "none":
                draft.random = self.binding.random_states(args, kwargs)
            draft.unasked = unasked(operator, args, kwargs)
            offer(self, draft)
        else:
            draft.inputs = [
                self._touch("input", slot, tensor)
                for slot, tensor in tree.tensors
                if written(operator, slot)
            ]
        if operator.graph:
            self._graph_runs(draft, 1)
        self._push(draft)
        draft.function = func
        return draft

    def _leave(self, draft: Draft, result: Any, error: str | None) -> None:
        operator = draft.operator
        self._pop(draft)
        draft.error = error
        if operator.graph:
            self._graph_runs(draft, -1)
        if operator.graph and draft.phase != "backward":
            self._own_all(draft)
        for seen in draft.inputs:
            if seen.storage is not None and self._writes(operator, seen):
                if not operator.awaits:
                    self._overwrite(seen.storage, seen.facts.extent)
                # Autograd counts the write only after the dispatcher returns, and not for every
                # tensor.
                seen.storage.rewritten(seen.facts.counter, seen.facts.counter + 1)
                seen.storage.make(seen.facts.extent)
        if operator.awaits and error is None:
            self._land_awaited(draft)
        if draft.selected:
            try:
                if error is None:
                    self._outputs(draft, operator, result)
                elif not operator.graph:
                    self.binding.judge_draft(
                        draft
                    )  # what it raised on is wanted as much as what it computed wrongly
            except BaseException as broken:
                draft.error = draft.error or self.binding.surfaced(broken)
                draft.outputs.clear()
                raise
            finally:
                self._void(draft)
                self._finish(draft)
        elif error is None:
            self._take_off(draft, result)
        self._guarded(self._after, draft, operator)

    def _void(self, draft: Draft) -> None:
        """What a call of compiled code read or wrote may be rewritten by the next fused kernel,
        which nobody sees.
        """
        if self._fresh:
            self._fresh = False
            for seen in (*draft.inputs, *draft.outputs):
                if seen.storage is not None and not seen.storage.steady:
                    seen.storage.versions.clear()

    def _graph_runs(self, draft: Draft, by: int) -> None:
        """What its generated code makes on the way is its own: only what went in and what comes out
        is read.
        """
        self._graphs[draft.thread] = self._graphs.get(draft.thread, 0) + by
        for seen in draft.inputs:
            if seen.storage is not None and not self._writes(draft.operator, seen):
                seen.storage.steady += by

    def _push(self, draft: Draft) -> None:
        """Put a call on its thread's stack and into the black box."""
        self._open.setdefault(draft.thread, []).append(draft)
        if self._box is not None:
            self.binding.box_enter(self._box, draft)

    def _pop(self, draft: Draft) -> None:
        stack = self._open.get(draft.thread, [])
        while stack and stack.pop() is not draft:
            pass
        if self._box is not None:
            self._box.leave(draft.index, draft.thread)

    def _outputs(self, draft: Draft, operator: Operator, result: Any) -> None:
        for slot, tensor in Tree(self.binding).find_result(result):
            draft.outputs += self._output(draft, operator, slot, tensor)
        for seen in draft.inputs:
            if self._writes(operator, seen) and not any(
                out.tensor is seen.tensor for out in draft.outputs
            ):
                draft.outputs += self._output(draft, operator, seen.slot, seen.tensor)
        offer(self, draft, made=True)
        self._take_off(draft, result)
        if operator.graph:
            if makes(draft):
                self.binding.suspected(draft.function)
        elif anomalous(draft) or (
            operator.watched and any(is_integer(out.facts.dtype) for out in draft.outputs)
        ):
            draft.status = self.binding.judge_draft(draft)
            self.overflowed = self.overflowed or bool(draft.status)
        if draft.sampled:
            self._keep_all(draft, operator)
        if draft.random and (draft.kept or draft.sampled or self.values == "full"):
            told = self.binding.keep_random(draft.random, draft.kept)
            if told is not None and draft.args is not None:
                draft.args = f'{draft.args[:-1]}, "random": {told}}}'

    def _keep_all(self, draft: Draft, operator: Operator) -> None:
        """Store every tensor of a sampled call; what it overwrote comes from the copies that _guard
        made.
        """
        for seen in (*draft.inputs, *draft.outputs):
            overwritten = seen.io == "input" and self._writes(operator, seen)
            tensor = draft.before.get(seen.slot) if overwritten else seen.tensor
            if (
                tensor is not None
                and seen.version is not None
                and seen.version.statistics is not None
            ):
                seen.value = self.binding.keep(tensor)

    def _after(self, draft: Draft, operator: Operator) -> None:
        if draft.phase in {"backward", "recompute"}:
            self.backward_seen = True
        if operator.signal:
            self.binding.signal()
        if monotonic() >= self._due:
            self._due = monotonic() + DUE_SECONDS
            self.binding.due()

    def _finish(self, draft: Draft) -> None:
        if self.io == "input":
            draft.outputs.clear()
        elif self.io == "output":
            draft.inputs.clear()
        for seen in (*draft.inputs, *draft.outputs):
            seen.tensor = None
        draft.before.clear()
        draft.random.clear()
        # which waits until it is known what came
        if not any(flight.draft is draft for flight in self._flights):
            self._finished.append(draft)

    # -- placing a call ----------------------------------------------------------------------------

    def _place(self, operator: Operator, site: Site) -> tuple[Draft, Any]:
        thread = get_ident()
        node = self.binding.running_node()
        phase = (
            "communication"
            if operator.collective
            else self._phase(thread, site, backward=node is not None)
        )
        scope = self._open.get(thread)
        level = "graph" if operator.graph else "operator"
        draft = self._draft(level, operator.op, scope[-1].module if scope else "", phase)
        draft.operator, draft.site = operator, site
        if node is not None:
            number = node._sequence_nr()
            forward = self._nodes.of(number)
            if forward is not None:
                draft.forward, draft.forward_index, draft.autograd = forward, forward.index, number
                if phase == "backward":
                    draft.module = forward.module
        self._own(draft)
        return draft, node

    def _own(self, draft: Draft) -> None:
        """The first call that sees a new sequence number of its thread owns the autograd node made
        with it.
        """
        number = draft.sequence = self.binding.next_sequence()
        if self._graphs.get(draft.thread) and draft.site is not None and draft.site.compiled:
            return  # the graph made the node
        if number <= self._sequence.get(draft.thread, -1):
            return
        self._sequence[draft.thread] = number
        if draft.operator.graph:
            return
        # create_graph: what a gradient is the gradient of stands in the forward pass
        if number > 0 and draft.phase == "backward":
            if draft.forward is not None:
                self._nodes.claim(number - 1, draft.forward)
        elif number > 0:
            self._nodes.claim(number - 1, draft)
            draft.autograd = number - 1

    def _own_all(self, draft: Draft) -> None:
        """The nodes that a compiled graph made and no call inside of it owns are the graph's."""
        number = self.binding.next_sequence()
        self._ended[draft.thread] = draft
        for made in range(max(draft.sequence, 0), number):
            self._nodes.own(made, draft)
        self._sequence[draft.thread] = max(self._sequence.get(draft.thread, -1), number)

    def _phase(self, thread: int, site: Site, *, backward: bool) -> str:
        pushed = self._phases.get(thread)
        if backward:
            return "recompute" if site.checkpoint else "backward"
        if pushed:
            return "forward" if site.closure else pushed[-1]
        if site.gradient:
            return "backward"
        return "optimizer" if site.optimizer else "forward"

    def _draft(self, level: str, op: str, module: str, phase: str) -> Draft:
        thread = get_ident()
        scope = self._open.get(thread)
        return Draft(
            self._count_up("index"),
            self.step,
            level,
            scope[-1].index if scope else None,
            phase,
            op,
            module,
            thread,
            again=self._nodes.again,
        )

    def _count_up(self, what: str) -> int:
        number = self._next[what]
        self._next[what] += 1
        return number

    def _name(self, draft: Draft) -> None:
        of_code = draft.level in {"operator", "graph"}
        what = (draft.module, draft.label if of_code else draft.op, draft.level)
        key = (*what, draft.phase)
        draft.k = self._counts[key] = self._counts.get(key, 0) + 1
        if draft.phase == "forward":
            self._originals[(*what, draft.k)] = draft.index
        elif draft.phase == "recompute":
            draft.forward_index = self._originals.get((*what, draft.k), draft.forward_index)

    def _selects(self, draft: Draft, node: Any) -> bool:
        partner = draft.forward if draft.phase == "backward" else None
        own = (draft.op, draft.label, draft.module, draft.phase, accumulates_gradient(node))
        apis = [getattr(each and each.site, "api", None) for each in (draft, partner)]
        return self.binding.wanted(*own, apis[0], getattr(partner, "op", None), apis[1])

    def _label_gradient(self, draft: Draft, node: Any) -> None:
        """The calls of an AccumulateGrad node hand a gradient to its parameter."""
        if not draft.inputs or not accumulates_gradient(node):
            return
        storage = draft.inputs[0].storage
        if storage and not storage.role:
            storage.role = "gradient"
            storage.name = self.binding.accumulates(node, draft.inputs[0].tensor)

    # -- observing tensors -------------------------------------------------------------------------

    def _storage_of(self, io: str, tensor: Any, facts: Facts) -> Storage | None:
        if not facts.address:
            return None
        storage = self._storages.get(facts.address)
        if storage is None:
            storage = Storage(
                self._count_up("storage"), self.binding.hold(tensor), counters=[0, facts.counter]
            )
            self._storages[facts.address] = storage
        elif io == "input" and facts.counter not in storage.counters:
            # A view does not share its base's counter yet while the call that makes it is
            # returning, so only inputs tell.
            storage.rewritten(facts.counter)
        if storage.name is None:  # a parameter has no name before its module is first called
            role, name = self.binding.label(tensor)
            if role is not None:
                storage.role, storage.name = role, name
        return storage

    def _touch(self, io: str, slot: str, tensor: Any) -> Observed:
        facts = self.binding.facts(tensor)
        storage = self._storage_of(io, tensor, facts)
        if storage is None:
            return Observed(io, slot, tensor, facts, None, None, 1, ())
        key, order, copies = covering(facts)
        # its content is nobody's yet: a version that is never read
        if storage.awaited and self._awaited(storage, facts.extent):
            return Observed(
                io,
                slot,
                tensor,
                facts,
                storage,
                Version(self._count_up("version"), order, unread=False),
                copies,
                order,
            )
        if (self._fresh and not storage.steady) or (
            io == "input" and facts.uncounted and self.binding.graphs_ran()
        ):
            storage.versions.clear()
        version = storage.versions.get(key)
        if version is None:
            version = storage.versions[key] = Version(self._count_up("version"), order)
        return Observed(io, slot, tensor, facts, storage, version, copies, order)

    def _observe(
        self, io: str, slot: str, tensor: Any, *, readable: bool = True, workspace: bool = False
    ) -> Observed:
        seen = self._touch(io, slot, tensor)
        version = seen.version
        if (
            seen.storage is not None
            and workspace
            and seen.facts.dtype == "uint8"
            and self.values != "full"
        ):
            # reading gives memory that nobody has written pages, which cost again once written
            seen.storage.blanked()
        if (
            version is None
            or not version.unread
            or not readable
            or self._hidden(seen)
            or (seen.storage is not None and seen.storage.blank(seen.facts.extent))
        ):
            return seen
        self._read_version(seen)
        return seen

    def _hidden(self, seen: Observed) -> bool:
        """Whether it is memory of a compiled graph that is running."""
        return (
            self._fresh
            and seen.storage is not None
            and not seen.storage.steady
            and bool(self._graphs.get(get_ident()))
        )

    def _read_version(self, seen: Observed) -> None:
        version, tensor, facts = seen.version, seen.tensor, seen.facts
        if version is None or not (facts.readable or facts.staged):
            return
        version.unread = False
        memory = tensor
        if facts.readable:
            version.order = seen.order
            version.statistics = self.binding.read(tensor)
            seen.arrived = seen.io == "input" and bool(
                version.statistics and (version.statistics.nan or version.statistics.pos_inf)
            )
            memory = tensor if facts.logical is None else self.binding.resolved(tensor)
        else:
            self._staged.add(self.binding.stage(tensor), version)
        version.value = self.binding.keep(memory) if self.values == "full" else None

    @staticmethod
    def _writes(operator: Operator, seen: Observed) -> bool:
        """Whether the call writes to a tensor; to the indices of one it makes new ones."""
        return not seen.part and written(operator, seen.slot)

    def _parts(self, seen: Observed) -> Iterator[Observed]:
        """What a composed tensor consists of besides its values."""
        for name, part in seen.facts.parts:
            observed = self._observe(seen.io, f"{seen.slot}.{name}", part)
            observed.part = True
            yield observed

    def _output(self, draft: Draft, operator: Operator, slot: str, tensor: Any) -> list[Observed]:
        unread = operator.begins or operator.allocator or head_of(slot) in draft.unasked
        seen = self._observe(
            "output", slot, tensor, readable=not unread, workspace=operator.workspace
        )
        if (
            operator.allocator
            and seen.storage is not None
            and not any(seen.storage is given.storage for given in draft.inputs)
        ):
            seen.storage.blanked()
        return [seen, *self._parts(seen)]

    def _guard(self, draft: Draft, operator: Operator, scalars: list[float]) -> None:
        """Copy the arguments that the call will overwrite, unless a non-finite result can be
        excluded.
        """
        if self.values not in {"anomaly", "sample"} or not operator.writes:
            return
        if not draft.sampled and (
            operator.bound == "overwritten" or excluded(operator, draft.inputs, scalars)
        ):
            return
        for seen in draft.inputs:
            if (
                self._writes(operator, seen)
                and not seen.facts.staged
                and seen.version
                and seen.version.statistics
            ):
                draft.before[seen.slot] = self.binding.clone(seen.tensor)
