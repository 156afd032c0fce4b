# SPDX-License-Identifier: Apache-2.0
"""`opscope run --check` of what torch.compile made: executions of a graph are held against the
graph itself, interpreted from the same inputs.

That happens as in again.py: in a thread of its own, from copies, with autocast and random numbers
as they were. One that deviates is cut down by compiling parts of it (windows.py). Compiled code
draws other random numbers than operators: a graph that draws some is compiled once more to draw
theirs, and accused only of nodes of which at most one draws, since which number is whose is not
known of more.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from opscope.judge.replayed import Replayed
from opscope.operators.spelling import COMPILED
from opscope.record.own_code import is_user
from opscope.record.torch.again import OWN_THREAD, Execution, matched, surroundings
from opscope.record.torch.dynamo import Captured
from opscope.record.torch.encoded import encode_window
from opscope.record.torch.interpreted import Interpreted, modules_of
from opscope.record.torch.perturbed import Converting
from opscope.record.torch.stacks import frames_of
from opscope.record.torch.windows import Cut, Cutter, Deviating, Run, judge, together
from opscope.run.contain import tell
from opscope.substitute.layout import WRITTEN

if TYPE_CHECKING:
    from opscope.record.torch.checker import Checker

MOST_DEVIATIONS = 3  # executions of one graph that deviate; then it is known
MOST_NODES = 50  # that are told
LARGEST = 256 << 20  # bytes of a graph's inputs
QUICK = 60.0  # seconds within which a graph is compiled once more whatever the budget


class Pass(msgspec.Struct, frozen=True):
    """The forward or backward pass of one execution: its row, what compiled code made and in which
    slots of the row, how operators make the same and of what; the graph's inputs, the slots that
    its nodes stand for, and places of the inputs whose gradients are made.
    """

    execution: Execution
    index: int
    made: Sequence[Any]
    slots: list[str]
    run: Run
    given: list[Any]
    inputs: list[Any]
    named: dict[str, str]
    draws: bool
    trained: list[int] = []
    eager: Sequence[Any] | None = None  # what its first run, by which it was learned, has given

    @property
    def key(self) -> tuple[int, bool]:
        """The graph, and which of its passes."""
        return id(self.execution.captured), bool(self.trained)


class Learned(msgspec.Struct, frozen=True):
    """What the operators of a pass were seen to do: draw random numbers, write to inputs at these
    places (AOTAutograd may have lost a write).
    """

    draws: bool
    written: frozenset[int]


class First(msgspec.Struct, frozen=True):
    """What the first run of a pass made, and what it was given, as it is afterwards."""

    made: Sequence[Any]
    given: list[Any]


class CompiledCheck:
    """Checks graphs for one process; the checker writes what comes of it."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._seen: Counter[int] = Counter()
        self._checks: Counter[int] = Counter()
        self._told: Counter[int] = Counter()
        self._cuts: dict[tuple[int, bool], Cut | None] = {}
        self._learned: dict[tuple[int, bool], Learned] = {}
        # graphs compiled once more for their forward pass, until their backward pass is judged
        self._again: dict[int, Callable[..., Any]] = {}
        self._seconds: defaultdict[int, float] = defaultdict(float)  # that checks of a graph took
        self._sampled = 0.0

    def wants(self, execution: Execution) -> bool:
        """Whether this execution is checked: the first of its graph, and later ones as far as the
        budget goes.
        """
        key = id(execution.captured)
        self._seen[key] += 1
        if not self._checker.active or self._told[key] >= MOST_DEVIATIONS:
            return False
        if self._seen[key] > 1 and not self._affords(self._seconds[key] / self._checks[key]):
            return False
        self._checks[key] += 1
        return True

    def _affords(self, seconds: float) -> bool:
        """Whether the budget has this much left."""
        checker, now = self._checker, time.perf_counter()
        return checker.budget.affords(seconds, self._sampled, now, checker.watching())

    def forward(self, execution: Execution, given: Sequence[Any], result: Any) -> None:
        """Judge what a graph made of these inputs, which are what they were but for its writes."""
        execution.checked = True
        self._apart(execution, lambda: self._forward(execution, given, result))

    def backward(
        self, execution: Execution, index: int, gradients: Sequence[Any], result: Any
    ) -> None:
        """Judge the gradients that the graph of an execution made, of these that it began with."""
        self._apart(execution, lambda: self._backward(execution, index, gradients, result))

    def _apart(self, execution: Execution, work: Callable[[], None]) -> None:
        """Do the work in a thread of its own; where it fails the graph is not judged."""
        failed: list[BaseException] = []

        def run() -> None:
            try:
                with surroundings(execution), torch.no_grad():
                    work()
            except Exception as error:  # noqa: BLE001 - of the graph's operators: said
                failed.append(error)

        begun = time.perf_counter()
        thread = threading.Thread(target=run, name=OWN_THREAD, daemon=True)
        thread.start()
        thread.join()
        self._took(id(execution.captured), time.perf_counter() - begun)
        for error in failed:
            self._miss(execution, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")

    def _took(self, key: int, seconds: float) -> None:
        self._checker.budget.spent += seconds
        self._seconds[key] += seconds
        self._sampled += seconds if self._checks[key] > 1 else 0.0

    def _miss(self, execution: Execution, why: str) -> None:
        self._checker.tally.miss(f"{COMPILED}{execution.captured.name}", why[:300])

    def _forward(self, execution: Execution, given: Sequence[Any], result: Any) -> None:
        inputs = [plainly(execution.copies.get(number, each)) for number, each in enumerate(given)]
        if not self._judges(execution, inputs):
            return
        outputs = listed(result)

        def operators(fresh: list[Any]) -> Sequence[Any]:
            return listed(interpreted(execution.captured, fresh))

        first = self._learn((id(execution.captured), False), operators, inputs)
        learned = self._learned[id(execution.captured), False]
        written = sorted({*execution.copies, *learned.written})

        def run(fresh: list[Any]) -> Sequence[Any]:
            return (*operators(fresh), *(fresh[number] for number in written))

        slots = [
            *(f"0.{number}" for number in range(len(outputs))),
            *(WRITTEN + str(number) for number in written),
        ]
        made = (*outputs, *(given[number] for number in written))
        places = input_places(execution.captured)
        named = {name: WRITTEN + str(number) for name, number in places.items()}
        named |= zip(output_names(execution.captured), slots, strict=False)
        eager = first and (*first.made, *(first.given[number] for number in written))
        held = Pass(
            execution, execution.index, made, slots, run, inputs, inputs, named, learned.draws
        )
        self._hold(msgspec.structs.replace(held, eager=eager))

    def _backward(
        self, execution: Execution, index: int, gradients: Sequence[Any], result: Any
    ) -> None:
        given = execution.given()
        if isinstance(given, str):
            self._miss(execution, given)
            return
        inputs = [plainly(each) for each in given]
        if not self._judges(execution, [*inputs, *gradients]):
            return
        wanted = trained_inputs(execution)
        shift = len(result) - len(inputs)

        def run(fresh: list[Any]) -> Sequence[Any]:
            leaves, begun = fresh[: len(inputs)], fresh[len(inputs) :]
            for number in wanted:
                leaves[number].requires_grad_()
            with torch.enable_grad():
                made = interpreted(execution.captured, leaves)
                pairs = matched(listed(made), begun)
                return torch.autograd.grad(
                    [output for output, _ in pairs],
                    [leaves[number] for number in wanted],
                    [gradient for _, gradient in pairs],
                    allow_unused=True,
                )

        made = [result[number + shift] for number in wanted]
        slots = [f"0.{number + shift}" for number in wanted]
        places = input_places(execution.captured)
        named = {name: f"0.{number + shift}" for name, number in places.items()}
        given = [*inputs, *gradients]
        key = (id(execution.captured), True)
        first = self._learn(key, run, given)
        held = Pass(
            execution,
            index,
            made,
            slots,
            run,
            given,
            inputs,
            named,
            self._learned[key].draws,
            wanted,
        )
        self._hold(msgspec.structs.replace(held, eager=first and first.made))

    def _judges(self, execution: Execution, given: Sequence[Any]) -> bool:
        """Whether a pass can be judged; why not is told."""
        if execution.refused is not None:
            self._miss(execution, execution.refused)
            return False
        if sum(each.nbytes for each in given if isinstance(each, torch.Tensor)) > LARGEST:
            self._miss(execution, "its inputs are too large to be copied")
            return False
        return True

    def _learn(self, key: tuple[int, bool], run: Run, given: Sequence[Any]) -> First | None:
        """Learn what the operators of a pass do by making it once, which gives what that made."""
        if key in self._learned:
            return None
        state, fresh = torch.get_rng_state(), together(given)
        before = [getattr(each, "_version", None) for each in fresh]
        made = run(fresh)
        after = [getattr(each, "_version", None) for each in fresh]
        self._learned[key] = Learned(
            draws=not torch.equal(torch.get_rng_state(), state),
            written=frozenset(
                number for number, version in enumerate(before) if version != after[number]
            ),
        )
        torch.set_rng_state(state)
        return First(made, fresh)

    def _hold(self, held: Pass) -> None:
        """Judge a pass."""
        if held.draws:
            self._compile_again(held)
        else:
            deviating = judge(held.made, held.run, held.given, eager=held.eager)
            if deviating is not None and self._stands(held):
                self._accuse(held, replayed(deviating, held.slots[deviating.place]))
            elif deviating is None:
                self._checker.tally.count("agree")

    def _stands(self, held: Pass) -> bool:
        """Whether what deviates is a fault: what operators make of the same is defined."""
        with Converting() as converting:
            held.run(together(held.given))
        if converting.undefined:
            self._miss(held.execution, "it converts numbers to integers that cannot hold them")
            return False
        self._checker.tally.count("wrong")
        return True

    def _compile_again(self, held: Pass) -> None:
        """Judge what the compiler makes of a graph when it is to draw as the operators do, once."""
        captured = held.execution.captured
        if held.key in self._cuts:
            return
        known = held.trained and id(captured) in self._again
        if not known and captured.seconds > QUICK and not self._affords(captured.seconds):
            self._miss(held.execution, "it draws random numbers, and takes long to compile again")
            return
        self._cuts[held.key] = None
        if captured.compiler is None:
            self._miss(held.execution, "it draws random numbers, and its compiler is not known")
            return
        cutter = self._cutter(held, random=torch.get_rng_state())
        whole = cutter.whole(self._compiled_again(held))
        if whole is None:
            self._checker.tally.count("agree")
        elif self._stands(held):
            self._cut_again(held, cutter, whole)

    def _compiled_again(self, held: Pass) -> Callable[..., Any]:
        """The graph, compiled once more: with its backward pass where it has one, and then only
        once for both.
        """
        key, trained = id(held.execution.captured), held.trained
        if trained and key in self._again:
            return self._again.pop(key)
        if any(getattr(each, "requires_grad", False) for each in held.made):
            trained = trained_inputs(held.execution)
        both = msgspec.structs.replace(held, trained=trained)
        compiled = self._cutter(both, random=torch.get_rng_state()).compiled()
        if trained and not held.trained:
            self._again[key] = compiled
        return compiled

    def _cut_again(self, held: Pass, cutter: Cutter, whole: Cut) -> None:
        captured = held.execution.captured
        tell(f"{captured.name} deviates from its own operators; looking for those that do")
        cut = cutter.cut()
        if cut is None or cut.draws > 1:
            self._miss(held.execution, "it deviates, and draws more than one random tensor")
            return
        self._cuts[held.key] = cut
        self._accuse(held, replayed(whole.deviating, held.named.get(whole.name, "0.0")))

    def _accuse(self, held: Pass, verdict: Replayed) -> None:
        captured = held.execution.captured
        self._told[id(captured)] += 1
        if held.key not in self._cuts:
            tell(f"{captured.name} deviates from its own operators; looking for those that do")
            known = captured.compiler is not None
            self._cuts[held.key] = self._cutter(held).cut() if known else None
        cut = self._cuts[held.key]
        # nodes that deviate when they alone are compiled are a second witness; where they draw,
        # they were compiled with another switch than the program's
        witnesses = 1 if cut is None or cut.draws else 2
        witnessed = msgspec.structs.replace(verdict, witnesses=witnesses)
        self._checker.accuse_compiled(held.index, witnessed, self._evidence(captured, cut))

    def _evidence(self, captured: Captured, cut: Cut | None) -> dict[str, Any]:
        """What a judgement says of the nodes that deviate alone, with their inputs kept."""
        if cut is None:
            return {}
        evidence: dict[str, Any] = {"nodes": [described(node) for node in cut.nodes[:MOST_NODES]]}
        encoded = None if cut.draws else encode_window(cut, captured.backend)
        if encoded is None:
            return evidence
        window, memories = encoded
        kept = {f"m{number}": self._checker.keep(each) for number, each in enumerate(memories)}
        return evidence if None in kept.values() else {**evidence, "window": window, "inputs": kept}

    @staticmethod
    def _cutter(held: Pass, random: torch.Tensor | None = None) -> Cutter:
        captured = held.execution.captured
        places = input_places(captured)
        return Cutter(
            captured.module,
            captured.graph,
            {name: held.inputs[number] for name, number in places.items()},
            captured.compiler,
            trained=frozenset(name for name, number in places.items() if number in held.trained),
            random=random,
        )


def trained_inputs(execution: Execution) -> list[int]:
    """Places of the inputs of which a graph gives gradients."""
    return [
        number
        for number, each in enumerate(execution.originals())
        if isinstance(each, torch.Tensor) and each.requires_grad and each.is_floating_point()
    ]


def input_places(captured: Captured) -> dict[str, int]:
    """Places of a graph's inputs, what it holds first, by the nodes that stand for them."""
    held = {name: number for number, name in enumerate(captured.held)}
    numbers: dict[str, int] = {}
    count = len(held)
    for node in captured.graph.nodes:
        if node.op == "placeholder":
            numbers[node.name] = count
            count += 1
        elif node.op == "get_attr" and node.target in held:
            numbers[node.name] = held[node.target]
    return numbers


def output_names(captured: Captured) -> list[str]:
    """Names of the nodes that a graph gives, those that are none left empty."""
    (output,) = (node for node in captured.graph.nodes if node.op == "output")
    return [str(getattr(each, "name", "")) for each in listed(output.args[0])]


def interpreted(captured: Captured, inputs: Sequence[Any]) -> Any:
    """What the operators of a graph make of all its inputs, what it holds first."""
    count = len(captured.held)
    held = dict(zip(captured.held, inputs[:count], strict=True))
    return Interpreted(captured.module, captured.graph, held).run(*inputs[count:])


def plainly(value: Any) -> Any:
    """A tensor without its history; anything else as it is."""
    return value.detach() if isinstance(value, torch.Tensor) else value


def listed(made: Any) -> tuple[Any, ...]:
    """The outputs of a graph."""
    return tuple(made) if isinstance(made, (tuple, list)) else (made,)


def replayed(deviating: Deviating, slot: str) -> Replayed:
    """The verdict of a graph that deviates."""
    deviation = deviating.deviation
    return Replayed(
        verdict="wrong",
        slot=slot,
        error=deviation.error,
        tolerance=deviation.tolerance,
        elements=deviation.elements,
        size=deviation.of,
        worst=deviation.worst,
        got=f"{deviation.got:g}",
        expected=f"{deviation.expected:g}",
    )


def described(node: torch.fx.Node) -> dict[str, Any]:
    """A node by what it calls, and where in the program."""
    frame = next((each for each in reversed(frames_of(node)) if is_user(each[0])), None)
    modules = modules_of(node)
    return {
        "node": node.name,
        "op": str(getattr(node.target, "__name__", node.target)),
        **({"source": f"{frame[0]}:{frame[1]}"} if frame is not None else {}),
        **({"module": modules[-1][0]} if modules else {}),
    }
