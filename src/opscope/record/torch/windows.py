# SPDX-License-Identifier: Apache-2.0
"""Parts of a captured graph, compiled alone beside the same part operator by operator: how a graph
that was compiled wrongly is cut down to the nodes that are.

A window is a run of consecutive nodes. What it reads of earlier nodes is given to it as they made
it, with the memory that values share shared again; what is judged is what later nodes read of it
and what it wrote to.
"""

from __future__ import annotations

import math
import operator
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
import torch
from torch.fx.node import map_arg

from opscope.arrays import Array
from opscope.judge.compiled import Deviation, Sides, deviation
from opscope.record.torch.dynamo import copied
from opscope.record.torch.interpreted import Interpreted, wraps
from opscope.record.torch.perturbed import Perturbed, Widened, widened

SECONDS = 90.0  # to cut one graph down
SIDES = 8  # with other roundings
NEAR = 32  # units of rounding within which two results are alike without more work
MOST = 1 << 24  # elements of one output
Run = Callable[[list[Any]], Sequence[Any]]


class Deviating(msgspec.Struct, frozen=True):
    """Which output of a graph or window deviates."""

    place: int
    deviation: Deviation

    def witness(self) -> dict[str, Any]:
        """The element that deviates most, as data (docs/schema.md, judgements)."""
        return {
            "place": self.place,
            "element": list(self.deviation.worst),
            "got": str(self.deviation.got),
            "expected": str(self.deviation.expected),
            "tolerance": str(self.deviation.tolerance),
        }


class Cut(msgspec.Struct, frozen=True):
    """Nodes that deviate when they are compiled alone, and what does of them; as a graph of their
    own, with what it is given, and at which places of that gradients were asked for.

    name: of the node that deviates, or whose gradient does. draws: how many of the nodes draw
    random numbers.
    """

    nodes: list[torch.fx.Node]
    deviating: Deviating
    graph: torch.fx.Graph
    given: list[torch.Tensor]
    trained: list[int]
    name: str
    draws: int


class Window(msgspec.Struct, frozen=True):
    """Calls as a graph of their own, what it is given, names of what it gives and is given, and the
    state of the random generator before it.
    """

    module: torch.fx.GraphModule
    given: list[Any]
    made: list[str]
    read: list[str]
    random: torch.Tensor | None


def judge(
    compiled: Sequence[Any],
    run: Run,
    given: Sequence[Any],
    *,
    eager: Sequence[Any] | None = None,
) -> Deviating | None:
    """The first output of compiled code that no correct compiler makes of what `run` makes of these
    inputs, None where all are correct. eager is what a first run has given, where one was made.

    Each run has inputs of its own; compiled and what run gives are outputs, then inputs as they are
    afterwards.
    """
    eager = run(together(given)) if eager is None else eager
    apart = [
        number
        for number, (one, other) in enumerate(zip(compiled, eager, strict=True))
        if judged(one, other) and not alike(one, other)
    ]
    if not apart:
        return None
    true = in_double_precision(run, [widened(each) for each in together(given)])
    wide = true or [None] * len(eager)
    sides = {number: sides_of(compiled[number], eager[number], wide[number]) for number in apart}
    left = {
        number: deviating
        for number, one in sides.items()
        if (deviating := deviation(one)) is not None
    }
    moved: dict[int, list[Array]] = {number: [] for number in left}
    for seed in range(SIDES):
        if not left:  # other roundings only widen what is allowed
            break
        fresh = together(given)  # which nothing rounds
        with Perturbed(seed):
            made = run(fresh)
        for number in list(left):
            moved[number].append(array(made[number]))
            deviating = deviation(msgspec.structs.replace(sides[number], moved=moved[number]))
            if deviating is None:
                del left[number]
            else:
                left[number] = deviating
    return next((Deviating(number, deviating) for number, deviating in left.items()), None)


def sides_of(compiled: torch.Tensor, eager: torch.Tensor, true: torch.Tensor | None) -> Sides:
    """One output as compiled code and operators make it, and as these do in double precision."""
    floats = eager.dtype.is_floating_point or eager.dtype.is_complex
    return Sides(
        compiled=array(compiled),
        eager=array(eager),
        moved=(),
        true=array(true) if floats and true is not None and true.shape == eager.shape else None,
        unit=torch.finfo(eager.dtype).eps / 2 if floats else 0.0,
    )


def in_double_precision(run: Run, inputs: list[Any]) -> Sequence[Any] | None:
    """What a graph makes of these inputs in double precision; None where it cannot, since it reads
    the bits of another type.
    """
    try:
        with Widened():  # type: ignore[no-untyped-call] # torch's
            return run(inputs)
    except Exception:  # noqa: BLE001 - whatever its operators raise
        return None


def judged(one: Any, other: Any) -> bool:
    """Whether two outputs are tensors that can be held beside each other."""
    return (
        isinstance(one, torch.Tensor)
        and isinstance(other, torch.Tensor)
        and one.layout == other.layout == torch.strided
        and one.shape == other.shape
        and not one.is_quantized
        and 0 < one.numel() <= MOST
    )


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two results are the same within a few units of rounding."""
    one, other = one.detach(), other.detach()
    if torch.equal(one, other):
        return True
    if not (other.is_floating_point() or other.is_complex()):
        return False
    near = NEAR * torch.finfo(other.dtype).eps / 2
    if other.dtype.itemsize < 4:  # numbers that are near each other differ exactly in their type
        one, other = one.float(), other.float()
    scale = float(torch.linalg.vector_norm(other, dtype=_wide(other))) / other.numel() ** 0.5
    if math.isfinite(scale):
        return bool(((one - other).abs() <= (other.abs() + scale).mul_(near)).all())
    return _alike_where_finite(one, other, near)


def _alike_where_finite(one: torch.Tensor, other: torch.Tensor, near: float) -> bool:
    """The same for results of which some are not finite, or too large for a sum of squares."""
    finite = other.isfinite()
    if not torch.equal(finite, one.isfinite()) or not torch.equal(other.isnan(), one.isnan()):
        return False
    one, other = one[finite].to(_wide(one)), other[finite].to(_wide(other))
    size = other.abs()
    scale = size.square().mean().sqrt() if size.numel() else 0.0
    return bool(((one - other).abs() <= near * (size + scale)).all())


def _wide(value: torch.Tensor) -> torch.dtype:
    return torch.complex128 if value.is_complex() else torch.float64


def array(value: torch.Tensor) -> Array:
    """Numbers of a tensor, as float64 or int64."""
    value = value.detach()
    if value.is_complex():
        value = torch.view_as_real(value)
    return value.to(torch.float64 if value.is_floating_point() else torch.int64).numpy()


def together(values: Sequence[Any]) -> list[Any]:
    """Copies of tensors that share memory where these do; anything else as it is."""
    memories: dict[int, torch.UntypedStorage] = {}
    copies = []
    for value in values:
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            copies.append(value)
            continue
        storage = value.detach().untyped_storage()
        if storage._cdata not in memories:
            memories[storage._cdata] = storage.clone()  # type: ignore[no-untyped-call] # torch's
        copy = torch.empty(0, dtype=value.dtype).set_(
            memories[storage._cdata], value.storage_offset(), value.shape, value.stride()
        )
        copies.append(copy)
    return copies


def trained_places(window: Window) -> list[int]:
    """Places of what a window is given for which gradients are collected."""
    return [number for number, each in enumerate(window.given) if each.requires_grad]


def leaves(values: Sequence[torch.Tensor], places: Sequence[int]) -> list[torch.Tensor]:
    """The same, gradients being collected for some of them."""
    return [
        each.requires_grad_() if number in places else each for number, each in enumerate(values)
    ]


def gradients(function: Callable[..., Any], given: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """Gradients of what a function gives for these leaves, begun with random ones that are always
    the same.
    """
    with torch.enable_grad():
        made = [
            each
            for each in function(*given)
            if isinstance(each, torch.Tensor) and each.requires_grad
        ]
        random = torch.Generator().manual_seed(0)
        begun = [
            torch.randn(each.shape, generator=random, dtype=torch.float64).to(each.dtype)
            for each in made
        ]
        wanted = [each for each in given if each.requires_grad]
        return torch.autograd.grad(made, wanted, begun, allow_unused=True)


class Draws:
    """Random numbers of a window: every forward pass begins with one state of the generator, and
    has to leave the same. None for windows that draw none.
    """

    def __init__(self, begin: torch.Tensor | None) -> None:
        self._begin = begin
        self._end: torch.Tensor | None = None

    def run(self, function: Callable[..., Any], *given: Any) -> Any:
        """Call a function; ValueError where it drew otherwise than the first one did."""
        if self._begin is None:
            return function(*given)
        torch.set_rng_state(self._begin)
        made = function(*given)
        end = torch.get_rng_state()
        if self._end is None:
            self._end = end
        elif not torch.equal(self._end, end):
            raise ValueError("compiled code draws other random numbers")
        return made

    @contextmanager
    def as_operators(self) -> Iterator[None]:
        """Have inductor's code draw as the operators do, by its own switch."""
        config = sys.modules.get("torch._inductor.config")
        if self._begin is None or config is None:
            yield
            return
        with config.patch(fallback_random=True):
            yield


class Cutter:
    """Cuts one graph down. values are what the graph holds and is given, by the name of the node
    that stands for it; compiler is its back end. trained: names of those for which gradients are
    collected, where gradients deviate; then those of a window are judged, begun with random ones.
    random: the state of the random generator at its beginning. Compiled windows draw from it as the
    operators do (inductor has a switch for that); one whose draws leave the generator elsewhere
    cannot be tried.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        graph: torch.fx.Graph,
        values: Mapping[str, Any],
        compiler: Callable[..., Any],
        *,
        trained: frozenset[str] = frozenset(),
        random: torch.Tensor | None = None,
    ) -> None:
        self._trained, self._random = trained, random
        self._module, self._graph, self._compiler = module, graph, compiler
        self._values = dict(values)
        self._calls = [node for node in graph.nodes if node.op.startswith("call_")]
        self._until = time.monotonic() + SECONDS
        self._drawing: set[torch.fx.Node] = set()

    def compiled(self) -> Callable[..., Any]:
        """All calls compiled once more, gradients being collected; raises what the compiler does.

        What is made and the gradients are judged of this one: see `whole`.
        """
        window = self._window(0, len(self._calls))
        draws, places = Draws(window.random), trained_places(window)
        given = leaves(together([each.detach() for each in window.given]), places)
        with draws.as_operators(), torch.set_grad_enabled(bool(places)):
            made: Callable[..., Any] = self._compiler(copied(window.module)[0], given)
        return made

    def whole(self, compiled: Callable[..., Any]) -> Cut | None:
        """What deviates of all calls, as they were compiled once more; raises what they do, and
        ValueError where they draw other random numbers.
        """
        return self._test(0, len(self._calls), lambda *_: compiled)

    def cut(self) -> Cut | None:
        """The smallest window that deviates, None where not even all nodes alone do, or time is
        up. Graphs within are opened, unless what deviates then agrees.
        """
        flat = inlined(self._module, self._graph)
        if flat is None:
            return self._narrow()
        opened = Cutter(
            self._module,
            flat,
            self._values,
            self._compiler,
            trained=self._trained,
            random=self._random,
        )
        return opened._narrow() or self._narrow()

    def _narrow(self) -> Cut | None:
        if self._random is not None:
            self._before(None, ())  # which nodes draw
        first, last = 0, len(self._calls)
        best = self.test(first, last)
        if best is None:
            return None
        low, high = 1, last  # the shortest beginning that deviates
        while low < high:
            middle = (low + high) // 2
            cut = self.test(0, middle)
            low, high, best = (low, middle, cut) if cut else (middle + 1, high, best)
        last = high
        low, high = 0, last - 1  # the shortest end of it that does
        while low < high:
            middle = (low + high + 1) // 2
            cut = self.test(middle, last)
            low, high, best = (middle, high, cut) if cut else (low, middle - 1, best)
        return self.test(low, last) or best

    def test(self, first: int, last: int) -> Cut | None:
        """What deviates of these calls, compiled alone; nothing where that cannot be tried."""
        if time.monotonic() > self._until:
            return None
        try:
            return self._test(first, last)
        except Exception:  # noqa: BLE001 - a window that cannot be compiled is none
            return None

    def _test(
        self, first: int, last: int, compiler: Callable[..., Any] | None = None
    ) -> Cut | None:
        window = self._window(first, last)
        apart, graph = copied(window.module)  # a back end may change one of the two
        plain = Interpreted(window.module, graph).run
        places = trained_places(window)
        tried = self._gradients if self._trained else self._results
        window = msgspec.structs.replace(window, module=apart)
        deviating = tried(window, compiler or self._compiler, plain, places)
        if deviating is None:
            return None
        names = [window.read[number] for number in places]
        if not self._trained:
            names = [*window.made, *window.read]
        nodes = self._calls[first:last]
        drawing = len(self._drawing.intersection(nodes))
        return Cut(nodes, deviating, graph, window.given, places, names[deviating.place], drawing)

    @staticmethod
    def _results(
        window: Window, compiler: Callable[..., Any], plain: Run, _: Sequence[int]
    ) -> Deviating | None:
        """What deviates of what a compiled window makes and writes."""
        draws, given = Draws(window.random), window.given
        with draws.as_operators():
            compiled = compiler(window.module, together(given))
            fresh = together(given)
            made = (*draws.run(compiled, *fresh), *fresh)
        return judge(made, lambda inputs: (*draws.run(plain, *inputs), *inputs), given)

    @staticmethod
    def _gradients(
        window: Window, compiler: Callable[..., Any], plain: Run, places: Sequence[int]
    ) -> Deviating | None:
        """What deviates of the gradients that a compiled window gives."""
        draws, given = Draws(window.random), [each.detach() for each in window.given]
        with draws.as_operators(), torch.enable_grad():
            compiled = compiler(window.module, leaves(together(given), places))
            made = gradients(partial(draws.run, compiled), leaves(together(given), places))
        operators = partial(draws.run, plain)
        return judge(made, lambda inputs: gradients(operators, leaves(inputs, places)), given)

    def _window(self, first: int, last: int) -> Window:
        """The calls as a graph of their own, and what it is given."""
        inside = self._calls[first:last]
        names = set(inside)
        needed = list(
            dict.fromkeys(
                each for node in inside for each in node.all_input_nodes if each not in names
            )
        )
        within = [node for node in needed if self._is_within(node)]
        needed = [node for node in needed if not self._is_within(node)]
        known = self._before(inside[0], needed)
        random = None if self._random is None else torch.get_rng_state()
        graph = torch.fx.Graph()
        made: dict[torch.fx.Node, Any] = {node: graph.node_copy(node) for node in within}
        read, given = [], []
        for node in needed:
            value = known[node]
            if isinstance(value, torch.Tensor):
                made[node] = graph.placeholder(node.name)
                read.append(node.name)
                given.append(value)
            else:
                made[node] = value
        for node in inside:
            made[node] = graph.node_copy(node, lambda each: made[each])
            made[node].args = map_arg(node.args, lambda each: made[each])
        results = [
            node
            for node in inside
            if any(user not in names for user in node.users) or node is inside[-1]
        ]
        graph.output(tuple(made[node] for node in results))
        copies = [
            each.requires_grad_(value.requires_grad)
            for each, value in zip(together(given), given, strict=True)
        ]
        return Window(
            torch.fx.GraphModule(self._module, graph),
            copies,
            [node.name for node in results],
            read,
            random,
        )

    def _is_within(self, node: torch.fx.Node) -> bool:
        """Whether a node stands for a graph: what is checkpointed, a branch of cond."""
        return node.op == "get_attr" and node.name not in self._values

    def _before(
        self, stop: torch.fx.Node | None, needed: Sequence[torch.fx.Node]
    ) -> dict[torch.fx.Node, Any]:
        """What these nodes made, at the time when a later one is about to run."""
        names = list(self._values)
        fresh = dict(zip(names, together(list(self._values.values())), strict=True))
        for name in self._trained:
            fresh[name].requires_grad_()
        values: dict[torch.fx.Node, Any] = {}
        interpreter = Interpreted(self._module, self._graph)
        interpreter.env = values
        if self._random is not None:
            torch.set_rng_state(self._random)
        with torch.set_grad_enabled(bool(self._trained)):
            for node in self._graph.nodes:
                if node is stop:
                    break
                if node.name in fresh:
                    values[node] = fresh[node.name]
                elif node.op != "output":
                    values[node] = self._played(interpreter, node)
        return {node: values[node] for node in needed}

    def _played(self, interpreter: Interpreted, node: torch.fx.Node) -> Any:
        """What a node makes; one that draws random numbers is noted."""
        if self._random is None:
            return interpreter.run_node(node)
        before = torch.get_rng_state()
        made = interpreter.run_node(node)
        if not torch.equal(torch.get_rng_state(), before):
            self._drawing.add(node)
        return made


# A captured graph without the graphs within that are called as they are: the body of a
# checkpoint stands where it was called.


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
