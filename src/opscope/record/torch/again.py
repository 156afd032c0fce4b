# SPDX-License-Identifier: Apache-2.0
"""A compiled graph executed again from the same inputs, operator by operator, under the recorder.

What generated code fused cannot be looked into; the graph it was made of can be interpreted. That
happens in a thread of its own, which has none of the program's modes, autograd state and compiler,
in the first step in which a graph is executed, and after it has been found to make what is not
finite. Nothing of the program's is written to: what the graph writes to was copied before, and
random generators are put back.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch

from opscope.operators.spelling import COMPILED
from opscope.record.torch.aside import TensorBase, aside
from opscope.record.torch.dynamo import Captured
from opscope.record.torch.interpreted import calling_frames, played, repeat, wraps
from opscope.record.torch.operators import COMMUNICATION

MOST_TIMES = 3  # that one graph is executed again, forward and backward each
MOST_MADE = 256 << 20  # bytes that the operators of graphs make which are looked into unasked
MOST_OPENED = 16  # executions of one graph that are
MOST_BYTES = 16 << 20  # that are copied for one call
SMALL = 1 << 20  # inputs that are kept alive until the backward pass
OWN_THREAD = "opscope-again"


@dataclass
class Execution:
    """One call of a graph, as far as it is needed to make it again.

    inputs are held weakly, but for small ones that may die before the backward pass; copies are of
    those that the graph writes to, by place. refused says why it cannot be made again;
    checked, that its forward pass was judged; opened are the inputs and results of its second
    execution until the backward pass of that is made.
    """

    captured: Captured
    inputs: list[Any]
    versions: list[int | None]
    copies: dict[int, torch.Tensor] = field(default_factory=dict)
    random: torch.Tensor | None = None
    autocast: tuple[bool, torch.dtype] = (False, torch.bfloat16)
    inference: bool = False
    refused: str | None = None
    unsound: bool = False
    checked: bool = False
    index: int = -1
    opened: tuple[list[Any], Any] | None = None

    def moved(self, given: Sequence[Any]) -> frozenset[int]:
        """Places of the inputs that were written to since."""
        return frozenset(
            number
            for number, (value, version) in enumerate(zip(given, self.versions, strict=True))
            if version is not None and getattr(value, "_version", version) != version
        )

    def originals(self) -> list[Any]:
        """Its inputs as the program has them now, None for those that were freed."""
        return [each() if isinstance(each, weakref.ref) else each for each in self.inputs]

    def parameters(self) -> tuple[torch.Tensor, ...]:
        """Those inputs that gradients are collected for, and that therefore are alive."""
        return tuple(
            each for each in self.originals() if isinstance(each, torch.Tensor) and is_trained(each)
        )

    def forget(self) -> None:
        """Let go of its inputs: its backward pass is over."""
        self.inputs, self.versions, self.copies, self.opened = [], [], {}, None
        self.refused = "its backward pass had been made before"

    def given(self) -> list[Any] | str:
        """The inputs as they were; a reason where they are not there any more."""
        inputs_now: list[Any] = []
        value: Any
        for number, (kept, version) in enumerate(zip(self.inputs, self.versions, strict=True)):
            value = kept() if isinstance(kept, weakref.ref) else kept
            if number in self.copies:
                inputs_now.append(self.copies[number])
                continue
            if isinstance(kept, weakref.ref) and value is None:
                return f"its input {number} was freed"
            if version is not None and value._version != version:
                return f"its input {number} was written to since"
            inputs_now.append(value)
        return inputs_now


class Turn(NamedTuple):
    """One second execution: of this call, in this phase. nodes: the call whose autograd nodes are
    made or gone through; keeps: its backward pass comes later.
    """

    call: int
    phase: str
    nodes: int
    keeps: bool = False


class _Opened(NamedTuple):
    """How often a graph was looked into, the first step of these, and the versions of parameters
    that it was given, by their identities.
    """

    step: int
    times: int
    versions: dict[int, int]


def is_trained(value: torch.Tensor) -> bool:
    """Whether gradients are collected for a tensor."""
    return value.is_leaf and value.requires_grad


def versions_of(given: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """The identity and version of each tensor that is trained and whose writes are counted."""
    for each in given:
        if isinstance(each, torch.Tensor) and is_trained(each) and not each.is_inference():
            yield id(each), each._version


class Again:
    """Executes graphs again for one recorder.

    enter and leave are the recorder's: of its modes in a thread. refused is told why a graph could
    not be.
    """

    def __init__(
        self,
        book: Any,
        enter: Callable[[], None],
        leave: Callable[[], None],
        refused: Callable[[str, str], None],
    ) -> None:
        self._book, self._enter, self._leave, self._refused = book, enter, leave, refused
        self._times: Counter[tuple[int, str]] = Counter()
        self._forbidden: dict[int, str | None] = {}
        self._opened: dict[int, _Opened] = {}
        self._held = 0  # bytes that second executions keep for their backward passes

    # -- before the call ---------------------------------------------------------------------------

    def before(
        self, captured: Captured, written: frozenset[int], given: Sequence[Any]
    ) -> Execution:
        """What of a call has to be kept while its inputs are what they are."""
        versions = [
            each._version if isinstance(each, torch.Tensor) and not each.is_inference() else None
            for each in given
        ]
        execution = Execution(
            captured, [weakly(each) for each in given], versions, refused=self._forbids(captured)
        )
        tensors = [each for each in given if isinstance(each, torch.Tensor)]
        execution.refused = execution.refused or unfit(tensors, given, written, captured)
        if execution.refused is None:
            execution.copies = {
                number: TensorBase.clone(given[number].detach()) for number in written
            }
            execution.random = torch.get_rng_state()
            execution.autocast = (
                torch.is_autocast_enabled("cpu"),
                torch.get_autocast_dtype("cpu"),
            )
            execution.inference = torch.is_inference_mode_enabled()
        return execution

    def _forbids(self, captured: Captured) -> str | None:
        key = id(captured)
        if key not in self._forbidden:
            self._forbidden[key] = side_effect(captured.graph)
        return self._forbidden[key]

    def keep_gradients(
        self, execution: Execution, gradients: Sequence[Any]
    ) -> list[torch.Tensor | None]:
        """Copies of the gradients that a backward pass begins with, which it may free; none where
        they are too large.
        """
        tensors = [each for each in gradients if isinstance(each, torch.Tensor)]
        if sum(each.nbytes for each in tensors) > MOST_BYTES:
            execution.refused = execution.refused or "the gradients it began with are too large"
            return []
        with aside():
            return [
                TensorBase.clone(each.detach()) if isinstance(each, torch.Tensor) else None
                for each in gradients
            ]

    # -- the second execution ----------------------------------------------------------------------

    def opens(self, captured: Captured, given: Sequence[Any]) -> bool:
        """Whether an execution of a graph is to be looked into: those of the first step in which it
        is executed, and behind it those with parameters that nobody has written to since, as of the
        parts of a batch where no optimizer ends a step.
        """
        first = _Opened(self._book.step, 0, {})
        step, times, versions = self._opened.get(id(captured), first)
        if times >= MOST_OPENED:
            return False
        if step != self._book.step:
            known = (each in versions.items() for each in versions_of(given))
            if not (next(known, False) and all(known)):  # ends at the first that was written to
                return False
        if not times and (not is_opaque(captured) or is_foreign(captured)):
            times = MOST_OPENED
        versions |= versions_of(given)
        self._opened[id(captured)] = _Opened(step, times + 1, versions)
        return bool(times < MOST_OPENED) and self._held + captured.made <= MOST_MADE

    def open(self, execution: Execution, given: Sequence[Any]) -> None:
        """Execute a forward graph again, and keep what its backward pass goes through."""
        tracked = torch.is_grad_enabled()
        if tracked:
            self._hold(execution)
        self._forward(execution, given, tracked=tracked)

    def _hold(self, execution: Execution) -> None:
        """Count what a second execution keeps, until the program lets go of the first."""
        self._held += execution.captured.made
        weakref.finalize(execution, self._let_go, execution.captured.made).atexit = False

    def _let_go(self, made: int) -> None:
        self._held -= made

    def open_backward(
        self, execution: Execution, index: int, gradients: Sequence[Any], result: Any
    ) -> None:
        """Execute the backward graph of what was opened."""
        (leaves, made), execution.opened = execution.opened or ([], ()), None

        def work() -> list[tuple[str, Any]]:
            return gradients_of(made, leaves, gradients, len(result))

        given = [(f"0.{slot}", each) for slot, each in placed(gradients)]
        self._run(execution, Turn(index, "backward", execution.index), work, given)

    def forward(self, execution: Execution, given: Sequence[Any]) -> None:
        """Execute a forward graph again."""
        if not self._tires(execution.captured, "forward"):
            self._forward(execution, given, tracked=False)

    def _forward(self, execution: Execution, given: Sequence[Any], *, tracked: bool) -> None:
        inputs = [execution.copies.get(number, each) for number, each in enumerate(given)]
        if tracked:
            with aside():
                inputs = as_leaves(inputs, given)

        def work() -> list[tuple[str, Any]]:
            with torch.inference_mode(execution.inference), torch.set_grad_enabled(tracked):
                made = repeat(execution.captured, self._book, inputs)
            execution.opened = (inputs, made) if tracked else None
            return results(execution, made)

        turn = Turn(execution.index, "forward", execution.index, keeps=tracked)
        self._run(execution, turn, work, placed(inputs))

    def backward(
        self, execution: Execution, index: int, gradients: Sequence[Any], result: Any
    ) -> None:
        """Execute a backward graph again, after the forward graph that it belongs to."""
        inputs = execution.given()
        if isinstance(inputs, str):
            execution.refused = execution.refused or inputs
            inputs = []
        originals = execution.originals()
        with aside():
            leaves = as_leaves(inputs, originals)

        def work() -> list[tuple[str, Any]]:
            made = repeat(execution.captured, self._book, leaves)
            return gradients_of(made, leaves, gradients, len(result))

        if not self._tires(execution.captured, "backward"):
            self._run(execution, Turn(index, "backward", index), work, placed(leaves))

    def _tires(self, captured: Captured, phase: str) -> bool:
        """Whether a graph was found unsound so often that one time more tells nothing."""
        self._times[id(captured), phase] += 1
        return self._times[id(captured), phase] > MOST_TIMES

    def _run(
        self,
        execution: Execution,
        turn: Turn,
        work: Callable[[], list[tuple[str, Any]]],
        given: Sequence[tuple[str, torch.Tensor]],
    ) -> None:
        """Do the work in a thread of its own, inside a row of the graph's that tells what it was
        given and what came of it.
        """
        captured = execution.captured
        if execution.refused is not None:
            self._refused(captured.name, execution.refused)
            return
        failed: list[BaseException] = []
        # whatever runs a backward pass would make one of the forward pass that comes before it
        callers = calling_frames(users=turn.phase == "backward")

        def run() -> None:
            self._book.again(turn.call, turn.nodes)
            self._enter()
            try:
                with surroundings(execution):
                    job = partial(self._inside, captured.name, turn.phase, work, given)
                    played(job, callers)()
            except BaseException as error:  # noqa: BLE001 - of the graph's operators: said, and the program goes on
                failed.append(error)
            finally:
                self._leave()
                self._book.again(-1, -1)
                if failed or not turn.keeps:
                    self._book.forget_nodes(turn.nodes)

        thread = threading.Thread(target=run, name=OWN_THREAD, daemon=True)
        thread.start()
        thread.join()
        for error in failed:
            text = str(error).partition("\n")[0]
            self._refused(captured.name, f"{type(error).__name__}: {text}"[:500])

    def _inside(
        self,
        name: str,
        phase: str,
        work: Callable[[], list[tuple[str, Any]]],
        given: Sequence[tuple[str, torch.Tensor]],
    ) -> None:
        self._book.push_phase(phase)
        scope = self._book.enter_scope("graph", f"{COMPILED}{name}", "", given)
        self._book.pop_phase()
        try:
            made = work()
        except BaseException as error:
            self._book.leave_scope(scope, [], f"{type(error).__name__}: {error}"[:4000])
            raise
        self._book.leave_scope(scope, made)


@contextmanager
def surroundings(execution: Execution) -> Iterator[None]:
    """Autocast and random numbers as they were for the call."""
    with ExitStack() as stack:
        if execution.random is not None:
            stack.callback(torch.set_rng_state, torch.get_rng_state())
            torch.set_rng_state(execution.random)
        enabled, dtype = execution.autocast
        if enabled:
            stack.enter_context(torch.autocast("cpu", dtype=dtype))
        yield


def results(execution: Execution, made: Any) -> list[tuple[str, Any]]:
    """What a second execution made and wrote, by the slots that it has in the graph's call."""
    outputs = made if isinstance(made, (tuple, list)) else (made,)
    return [
        (f"0.{number}", each)
        for number, each in enumerate(outputs)
        if isinstance(each, torch.Tensor)
    ] + [(str(number), copy) for number, copy in execution.copies.items()]


def placed(values: Sequence[Any]) -> list[tuple[str, torch.Tensor]]:
    """The tensors among these with their places."""
    return [(str(slot), each) for slot, each in enumerate(values) if isinstance(each, torch.Tensor)]


def as_leaves(values: Sequence[Any], originals: Sequence[Any]) -> list[Any]:
    """These values, those as leaves of an autograd graph of their own that need gradients in the
    program.
    """
    return [
        each.detach().requires_grad_()
        if isinstance(each, torch.Tensor)
        and each.is_floating_point()
        and getattr(original, "requires_grad", False)
        else each
        for each, original in zip(values, originals, strict=bool(values))
    ]


def gradients_of(
    made: Any, leaves: Sequence[Any], gradients: Sequence[Any], count: int
) -> list[tuple[str, Any]]:
    """Gradients of the leaves of what was made of them, by the slots that they have among the
    `count` results of the graph's backward call.
    """
    outputs = made if isinstance(made, (tuple, list)) else (made,)
    pairs = matched(outputs, gradients)
    wanted = [
        number
        for number, each in enumerate(leaves)
        if isinstance(each, torch.Tensor) and each.requires_grad
    ]
    computed = torch.autograd.grad(
        [output for output, _ in pairs],
        [leaves[number] for number in wanted],
        [gradient for _, gradient in pairs],
        allow_unused=True,
    )
    shift = count - len(leaves)
    return [
        (f"0.{number + shift}", each)
        for number, each in zip(wanted, computed, strict=True)
        if each is not None
    ]


def is_opaque(captured: Captured) -> bool:
    """Whether a graph's back end generates code, as torch's own do but for those it has for
    debugging, which run operators.
    """
    from torch._dynamo.backends import registry

    return captured.backend in registry.list_backends()


def is_foreign(captured: Captured) -> bool:
    """Whether a graph, or one within it, calls what is not torch's own: nobody knows what that does
    besides; or an operator of higher order that does more than call the graph that it is given:
    nobody knows what its plain form makes on the way.
    """
    within = [
        each.graph
        for name, each in captured.module.named_modules()
        if name and isinstance(each, torch.fx.GraphModule)
    ]
    return any(not _is_own(node) for graph in (captured.graph, *within) for node in graph.nodes)


def _is_own(node: torch.fx.Node) -> bool:
    if node.op != "call_function":
        return node.op != "call_module"
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return wraps(node)
    if isinstance(node.target, torch._ops.OpOverload):
        return torch._library.utils.is_builtin(node.target)
    module = str(getattr(node.target, "__module__", None) or "torch")
    return module.partition(".")[0] in {"torch", "_operator", "operator", "builtins", "math"}


def weakly(value: Any) -> Any:
    """A weak reference to a tensor, unless it is small and no parameter; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return value if value.nbytes <= SMALL and not is_trained(value) else weakref.ref(value)


def untrained(given: Sequence[Any]) -> frozenset[int]:
    """Places of the inputs that a graph may write to of which nobody says: the small ones that no
    gradient is collected for; none where they are too many.
    """
    places = frozenset(
        number
        for number, each in enumerate(given)
        if isinstance(each, torch.Tensor) and each.nbytes <= SMALL and not is_trained(each)
    )
    return places if sum(given[number].nbytes for number in places) <= MOST_BYTES else frozenset()


def unfit(
    tensors: Sequence[torch.Tensor],
    given: Sequence[Any],
    written: frozenset[int],
    captured: Captured,
) -> str | None:
    """Why a call with these inputs cannot be made again, None where it can."""
    if any(each.device.type != "cpu" for each in tensors):
        return "its tensors are on a device"
    if captured.written is None and any(
        isinstance(each, torch.Tensor) and each.is_inference() and number not in written
        for number, each in enumerate(given)
    ):
        return "nobody said what it writes to, and tensors of inference mode do not tell"
    if any(
        number >= len(given) or not isinstance(given[number], torch.Tensor) for number in written
    ):
        return "it writes to what is no tensor"
    if sum(given[number].nbytes for number in written) > MOST_BYTES:
        return "the inputs that it writes to are too large to be copied"
    memory = Counter(
        each.untyped_storage()._cdata for each in tensors if torch._C._has_storage(each)
    )
    if any(memory[given[number].untyped_storage()._cdata] > 1 for number in written):
        return "an input that it writes to shares memory with another"
    return None


def side_effect(graph: torch.fx.Graph) -> str | None:
    """What a graph does besides computing, None where it does nothing else."""
    for node in graph.nodes:
        name = f"{torch.typename(node.target)} {node.target}"
        if any(word in name for word in (*COMMUNICATION, "torch.distributed", "with_effects")):
            return f"it has side effects ({node.target})"
    return None


def matched(outputs: Sequence[Any], gradients: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Outputs that have a gradient, with it; ValueError where they do not fit together."""
    shift = len(gradients) - len(outputs)
    if shift < 0:
        raise ValueError("fewer gradients than outputs")
    pairs = [
        (output, gradient)
        for output, gradient in zip(outputs, gradients[shift:], strict=True)
        if isinstance(output, torch.Tensor) and output.requires_grad and gradient is not None
    ]
    if any(output.shape != gradient.shape for output, gradient in pairs):
        raise ValueError("gradients of other shapes than the outputs")
    return pairs
