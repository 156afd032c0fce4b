# SPDX-License-Identifier: Apache-2.0
"""`opscope run --check` of what torch.compile made: executions of a graph are held against the
graph itself, interpreted from the same inputs.

That happens as in again.py: in a thread of its own, from copies, with autocast and random numbers
as they were. A graph that draws random numbers is left out, since compiled code draws others. One
that deviates is cut down by compiling parts of it (windows.py).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from opscope.judge.replayed import Replayed
from opscope.record.torch.again import OWN_THREAD, Execution, matched, surroundings
from opscope.record.torch.dynamo import Captured
from opscope.record.torch.encoded import encode_window
from opscope.record.torch.interpreted import Interpreted, frames_of, modules_of
from opscope.record.torch.stacks import is_user
from opscope.record.torch.windows import Cut, Cutter, Deviating, Run, judge
from opscope.run.contain import tell
from opscope.substitute.layout import WRITTEN

if TYPE_CHECKING:
    from opscope.record.torch.checker import Checker

SECONDS = 90.0  # to cut one graph down
MOST_TOLD = 3  # executions of one graph that deviate; then it is known
MOST_NODES = 50  # that are told
LARGEST = 256 << 20  # bytes of a graph's inputs


class CompiledCheck:
    """Checks graphs for one process; the checker writes what comes of it."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._seen: Counter[int] = Counter()
        self._told: Counter[int] = Counter()
        self._cuts: dict[tuple[int, bool], Cut | None] = {}
        self._spent, self._begun = 0.0, time.monotonic()

    def wants(self, execution: Execution) -> bool:
        """Whether this execution is checked: the first of its graph, and later ones as far as the
        budget goes.
        """
        key = id(execution.captured)
        self._seen[key] += 1
        if not self._checker.active or self._told[key] >= MOST_TOLD:
            return False
        share = self._checker.budget.share
        return (
            self._seen[key] == 1
            or share is None
            or self._spent < share * (time.monotonic() - self._begun)
        )

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

        begun = time.monotonic()
        thread = threading.Thread(target=run, name=OWN_THREAD, daemon=True)
        thread.start()
        thread.join()
        self._spent += time.monotonic() - begun
        for error in failed:
            self._miss(execution, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")

    def _miss(self, execution: Execution, why: str) -> None:
        self._checker.tally.miss(f"compiled::{execution.captured.name}", why[:300])

    def _forward(self, execution: Execution, given: Sequence[Any], result: Any) -> None:
        inputs = [plainly(execution.copies.get(place, each)) for place, each in enumerate(given)]
        written, outputs = sorted(execution.copies), listed(result)

        def run(fresh: list[Any]) -> Sequence[Any]:
            made = interpreted(execution.captured, fresh)
            return (*listed(made), *(fresh[place] for place in written))

        slots = [
            *(f"0.{place}" for place in range(len(outputs))),
            *(WRITTEN + str(place) for place in written),
        ]
        made = (*outputs, *(given[place] for place in written))
        found = self._judged(execution, made, run, inputs)
        if found is not None:
            self._accuse(execution, execution.index, replayed(found, slots[found.place]), inputs)

    def _backward(
        self, execution: Execution, index: int, gradients: Sequence[Any], result: Any
    ) -> None:
        given = execution.given()
        if isinstance(given, str):
            self._miss(execution, given)
            return
        inputs = [plainly(each) for each in given]
        wanted = [
            place
            for place, each in enumerate(execution.originals())
            if isinstance(each, torch.Tensor) and each.requires_grad and each.is_floating_point()
        ]
        shift = len(result) - len(inputs)

        def run(fresh: list[Any]) -> Sequence[Any]:
            leaves, begun = fresh[: len(inputs)], fresh[len(inputs) :]
            for place in wanted:
                leaves[place].requires_grad_()
            with torch.enable_grad():
                made = interpreted(execution.captured, leaves)
                pairs = matched(listed(made), begun)
                return torch.autograd.grad(
                    [output for output, _ in pairs],
                    [leaves[place] for place in wanted],
                    [gradient for _, gradient in pairs],
                    allow_unused=True,
                )

        made = [result[place + shift] for place in wanted]
        found = self._judged(execution, made, run, [*inputs, *gradients])
        if found is not None:
            verdict = replayed(found, f"0.{wanted[found.place] + shift}")
            self._accuse(execution, index, verdict, inputs, trained=wanted)

    def _judged(
        self, execution: Execution, made: Sequence[Any], run: Run, inputs: Sequence[Any]
    ) -> Deviating | None:
        """What deviates of an execution that can be judged."""
        if execution.refused is not None:
            self._miss(execution, execution.refused)
            return None
        if sum(each.nbytes for each in inputs if isinstance(each, torch.Tensor)) > LARGEST:
            self._miss(execution, "its inputs are too large to be copied")
            return None
        drawn: list[bool] = []
        state = torch.get_rng_state()

        def watched(fresh: list[Any]) -> Sequence[Any]:
            torch.set_rng_state(state)
            results = run(fresh)
            drawn.append(not torch.equal(torch.get_rng_state(), state))
            return results

        found = judge(made, watched, inputs)
        if any(drawn):
            self._miss(execution, "it draws random numbers, and compiled code draws others")
            return None
        self._checker.tally.count("agree" if found is None else "wrong")
        return found

    def _accuse(
        self,
        execution: Execution,
        index: int,
        found: Replayed,
        inputs: Sequence[Any],
        trained: Sequence[int] = (),
    ) -> None:
        captured = execution.captured
        self._told[id(captured)] += 1
        key = (id(captured), bool(trained))
        if key not in self._cuts:
            tell(f"{captured.name} deviates from its own operators; looking for those that do")
            self._cuts[key] = self._cut(captured, inputs, trained)
        cut = self._cuts[key]
        # nodes that deviate when they alone are compiled are a second witness
        witnessed = msgspec.structs.replace(found, witnesses=1 if cut is None else 2)
        self._checker.accuse_compiled(index, witnessed, self._evidence(captured, cut))

    def _evidence(self, captured: Captured, cut: Cut | None) -> dict[str, Any]:
        """What a judgement says of the nodes that deviate alone, with their inputs kept."""
        if cut is None:
            return {}
        found: dict[str, Any] = {"nodes": [described(node) for node in cut.nodes[:MOST_NODES]]}
        encoded = encode_window(cut, captured.backend)
        if encoded is None:
            return found
        window, memories = encoded
        kept = {f"m{place}": self._checker.keep(each) for place, each in enumerate(memories)}
        return found if None in kept.values() else {**found, "window": window, "inputs": kept}

    @staticmethod
    def _cut(captured: Captured, inputs: Sequence[Any], trained: Sequence[int]) -> Cut | None:
        if captured.compiler is None:
            return None
        count = len(captured.held)
        places = {name: place for place, name in enumerate(captured.held)}
        for node in captured.graph.nodes:
            if node.op == "placeholder":
                places[node.name] = count
                count += 1
            elif node.op == "get_attr" and node.target in places:
                places[node.name] = places[node.target]
        known = [
            node.name
            for node in captured.graph.nodes
            if node.op in {"placeholder", "get_attr"} and node.name in places
        ]
        return Cutter(
            captured.module,
            captured.graph,
            {name: inputs[places[name]] for name in known},
            captured.compiler,
            seconds=SECONDS,
            trained=frozenset(name for name in known if places[name] in trained),
        ).cut()


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
    found = deviating.found
    return Replayed(
        verdict="wrong",
        slot=slot,
        error=found.error,
        tolerance=found.tolerance,
        elements=found.elements,
        size=found.of,
        worst=found.worst,
        got=f"{found.got:g}",
        expected=f"{found.expected:g}",
    )


def described(node: torch.fx.Node) -> dict[str, Any]:
    """A node by what it calls, and where in the program."""
    place = next((each for each in reversed(frames_of(node)) if is_user(each[0])), None)
    modules = modules_of(node)
    return {
        "node": node.name,
        "op": str(getattr(node.target, "__name__", node.target)),
        **({"source": f"{place[0]}:{place[1]}"} if place is not None else {}),
        **({"module": modules[-1][0]} if modules else {}),
    }
