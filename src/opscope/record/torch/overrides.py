# SPDX-License-Identifier: Apache-2.0
"""Functions that a program registers above an operator's kernel: its autograd formula, or what it
is composed of.

They run before any dispatch mode sees a call, so the calls are met where they are made:
torch.library hands every such registration over, and the function is watched from then on. A call
becomes a row of its own, its result is judged like that of any kernel, and its formula by the
gradient that torch's own formula gives for the same inputs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from opscope.judge.replayed import Replayed
from opscope.kernels.arguments import Tree
from opscope.record.torch.aside import aside
from opscope.record.torch.capture import LEAVES, Captured, NotCapturedError, capture
from opscope.record.torch.checker import LIMIT
from opscope.record.torch.operators import describe
from opscope.run.contain import contain
from opscope.substitute.layout import ARGUMENTS, GRADIENT, GRADS, WANTED
from opscope.substitute.schema import overload_named, written_arguments

if TYPE_CHECKING:
    from opscope.record.torch.checker import Checker

LARGEST = 1 << 20  # elements of an operator that is called again for differences
ABOVE = (
    "Autograd",
    "CompositeImplicitAutograd",
)  # how the dispatch keys begin whose functions run above the modes
KNOWN = "aten::"  # the operators that the clean process has
TORCHS = frozenset(
    {
        "prims",
        "rngprims",
        "debugprims",
        "inductor",
        "c10d",
        "_c10d_functional",
        "_c10d_functional_autograd",
        "prim",
        "profiler",
    }
)


class Overrides:
    """Watches the functions that programs register above kernels, as long as it is installed.

    enter begins a row of table calls and returns its index, leave ends it; watched says whether
    calls are recorded now.
    """

    def __init__(
        self,
        checker: Checker,
        *,
        enter: Callable[[str, list[tuple[str, torch.Tensor]]], int | None],
        leave: Callable[[int, list[tuple[str, torch.Tensor]], str | None], None],
        watched: Callable[[], bool],
    ) -> None:
        self.checker = checker
        self.enter = enter
        self.leave = leave
        self.watched = watched
        self._inside = threading.local()
        self._pid = os.getpid()
        self._genuine: Callable[..., Any] | None = None

    def install(self) -> None:
        """Take part in every registration from now on."""
        for entry in torch.library._impls:
            namespace, name, key = entry.split("/")[:3]
            if f"{namespace}::" == KNOWN and key.startswith(ABOVE):
                self.checker.tally.miss(
                    KNOWN + name,
                    f"its {key} function was registered before recording began: use opscope "
                    "run --check",
                )
        genuine: Any = torch.library.Library.impl
        self._genuine = genuine

        def impl(
            library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any
        ) -> Any:
            overridden = contain(
                self.checker.fail, registered_above, library, op_name, fn, dispatch_key
            )
            if overridden is not None:
                fn = self._watching(overridden, fn, keyset=bool(options.get("with_keyset")))
            return genuine(library, op_name, fn, dispatch_key, **options)

        torch.library.Library.impl = impl  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        """Registrations are left alone again; functions that were registered meanwhile pass calls
        through.
        """
        if self._genuine is not None:
            torch.library.Library.impl = self._genuine  # type: ignore[method-assign]
            self._genuine = None

    def _watching(
        self, op_name: Any, fn: Callable[..., Any], *, keyset: bool
    ) -> Callable[..., Any]:
        override: list[Override] = []

        def watching(*args: Any, **kwargs: Any) -> Any:
            if not self._wanted():
                return fn(*args, **kwargs)
            if not override:
                made = contain(self.checker.fail, Override, op_name, self.aside)
                if made is None:
                    return fn(*args, **kwargs)
                override.append(made)
            given = args[1:] if keyset else args
            known = override[0].op.startswith(KNOWN)
            return (self._call if known else self._own)(
                override[0], lambda: fn(*args, **kwargs), given, kwargs
            )

        return watching

    def _wanted(self) -> bool:
        inside = (
            getattr(self._inside, "now", False)
            or os.getpid() != self._pid
            or torch.compiler.is_compiling()
        )
        return not inside and self.checker.active and self.watched()

    def _call(
        self,
        override: Override,
        made: Callable[[], Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        index = self._entered(override, args, kwargs)
        try:
            result = self.checker.call(
                override, args, kwargs, run=made, formula=lambda: gradient(override, args, kwargs)
            )
        except BaseException as error:
            self._left(index, [], f"{type(error).__name__}: {error}"[:4000])
            raise
        self._left(index, Tree(LEAVES).find_result(result), None)
        return result

    def _own(
        self,
        override: Override,
        made: Callable[[], Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        """A call of an operator that the program itself defines: its modes see the call, here its
        formula is judged.
        """
        result = made()
        verdict = self.checker.formula(
            override, args, kwargs, lambda: derivative(override, args, kwargs)
        )
        if verdict is not None:
            index = self._entered(override, args, kwargs)
            if index is not None:
                self.checker.accuse_formula(index, verdict)
            self._left(index, Tree(LEAVES).find_result(result), None)
        return result

    def _entered(
        self, override: Override, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> int | None:
        return contain(
            self.checker.fail, lambda: self.enter(override.op, Tree(LEAVES).find(args, kwargs))
        )

    def _left(
        self, index: int | None, tensors: list[tuple[str, torch.Tensor]], error: str | None
    ) -> None:
        if index is not None:
            contain(self.checker.fail, self.leave, index, tensors, error)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Calls of this thread are the checker's own, not the program's."""
        self._inside.now = True
        try:
            yield
        finally:
            self._inside.now = False


def registered_above(library: Any, op_name: Any, fn: Any, dispatch_key: str) -> Any:
    """The operator that a program registers a function for above its kernels, by name or as its
    overload; None for any other function.
    """
    key = dispatch_key or library.dispatch_key or ABOVE[1]
    if library.ns in TORCHS or not key.startswith(ABOVE) or fn is torch.library.fallthrough_kernel:
        return None
    return (
        op_name
        if isinstance(op_name, torch._ops.OpOverload)
        else f"{library.ns}::{str(op_name).rpartition('::')[2]}"
    )


@contextmanager
def without_overrides(wanted: Callable[[str], bool]) -> Iterator[None]:
    """A block in which torch's own formulas and compositions stay in place for wanted operators,
    whatever a program registers.
    """
    genuine: Any = torch.library.Library.impl

    def impl(library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
        overridden = registered_above(library, op_name, fn, dispatch_key)
        if isinstance(overridden, str):
            overridden = overload_named(overridden) if overridden.startswith(KNOWN) else None
        if overridden is not None and wanted(describe(overridden).op):
            return None
        return genuine(library, op_name, fn, dispatch_key, **options)

    torch.library.Library.impl = impl  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.library.Library.impl = genuine  # type: ignore[method-assign]


class Override:
    """An operator whose function was replaced; called, it runs that function aside of the
    program.
    """

    def __init__(self, op_name: Any, aside: Callable[[], AbstractContextManager[None]]) -> None:
        self.func = (
            op_name if isinstance(op_name, torch._ops.OpOverload) else overload_named(str(op_name))
        )
        self.op = describe(self.func).op
        self.aside = aside
        self._schema = self.func._schema
        self.tags = self.func.tags

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.aside():
            return self.func(*args, **kwargs)


def gradient(
    override: Override, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Captured, list[torch.Tensor]] | None:
    """The gradients that a call's formula gives for its own inputs and a drawn gradient of its
    first result: as a call, and them.

    None where nothing requires a gradient. The program's tensors, graph and generators stay as they
    are.
    """
    leaves = {
        slot: tensor.detach().requires_grad_()
        for slot, tensor in Tree(LEAVES).find(args, kwargs)
        if tensor.requires_grad
    }
    if not leaves or torch._C._current_graph_task_id() >= 0:
        return None
    given, named = replaced(args, kwargs, leaves)
    try:
        with torch.enable_grad():
            result = override(*given, **named)
            output = next(
                (each for _, each in Tree(LEAVES).find_result(result) if each.requires_grad), None
            )
            if output is None:
                raise NotCapturedError("its result requires no gradient, though its arguments do")
            incoming = drawn_like(output)
            gradients = torch.autograd.grad(
                [output], list(leaves.values()), [incoming], allow_unused=True
            )
    except Exception as error:
        raise NotCapturedError(
            f"its formula raised {type(error).__name__}: {error}"[:200]
        ) from error
    made = [
        torch.zeros_like(leaf) if each is None else each.detach()
        for leaf, each in zip(leaves.values(), gradients, strict=True)
    ]
    plain, plainly = replaced(args, kwargs, {slot: leaf.detach() for slot, leaf in leaves.items()})
    more = {GRADS: [incoming], WANTED: list(leaves), ARGUMENTS: True}
    call = capture(
        GRADIENT + override.op,
        plain,
        {**plainly, **more},
        writes=frozenset(),
        random=False,
        limit=LIMIT,
    )
    return call, made


def derivative(override: Override, args: Sequence[Any], kwargs: dict[str, Any]) -> Replayed | None:
    """What is to be said against the gradient formula of a program's own operator.

    An operator that writes, draws random numbers or may talk to other processes is not called
    again.
    """
    unsafe = (
        written_arguments(override._schema) or torch.Tag.nondeterministic_seeded in override.tags
    )
    if (
        unsafe
        or torch._C._current_graph_task_id() >= 0
        or (torch.distributed.is_available() and torch.distributed.is_initialized())
    ):
        return None
    arguments = Tree(LEAVES).find(args, kwargs)
    wide = {
        slot: tensor.detach().double() for slot, tensor in arguments if tensor.is_floating_point()
    }
    needed = {
        slot: tensor
        for slot, tensor in arguments
        if tensor.requires_grad and tensor.is_floating_point()
    }
    if not needed or sum(tensor.numel() for _, tensor in arguments) > LARGEST:
        return None
    try:
        return check_derivative(
            override, needed, lambda tensors: replaced(args, kwargs, {**wide, **tensors})
        )
    except Exception:  # noqa: BLE001 - the program's own code, asked for what it may not be made for (float64)
        return None


def replaced(
    args: Sequence[Any], kwargs: dict[str, Any], tensors: dict[str, torch.Tensor]
) -> tuple[list[Any], dict[str, Any]]:
    """The same arguments with other tensors in some slots, all others detached."""

    def put(value: Any, slot: str) -> Any:
        if isinstance(value, torch.Tensor):
            return tensors.get(slot, value.detach())
        if isinstance(value, (list, tuple)):
            return type(value)(put(item, f"{slot}.{number}") for number, item in enumerate(value))
        return value

    with aside():
        return [put(each, str(number)) for number, each in enumerate(args)], {
            key: put(each, f"kwargs.{key}") for key, each in kwargs.items()
        }


# Whether the gradient formula of a program's own operator is the derivative of the operator: by
# central differences in float64.
#
# No trusted process has such an operator, so the operator itself is asked: its schema promises
# that it writes to nothing. What has no derivative there is left alone: results that do not
# change with an argument (rounding, whose formula passes gradients straight through on purpose),
# results that are an argument (reversed or scaled gradients), and kinks, where two step widths
# give two answers.

WIDTHS = (1e-4, 1e-5)  # of a step, relative to the mean magnitude of the argument
# by how much two widths may differ, as a share of the sum of the magnitudes of all changes
SMOOTH = 1e-5
WRONG = 1e-3  # from when on a formula differs, as such a share


def check_derivative(
    function: Callable[..., Any], tensors: Mapping[str, torch.Tensor], put: Callable[..., Any]
) -> Replayed | None:
    """A verdict against the formula, for the first argument whose gradient is not the derivative;
    None where none is.

    tensors are those that require a gradient by slot; put(tensors by slot) gives arguments and
    keyword arguments in float64. Errors of the function pass through.
    """
    leaves = {slot: tensor.detach().double().requires_grad_() for slot, tensor in tensors.items()}
    with torch.enable_grad():
        args, kwargs = put(leaves)
        output = first_output(function(*args, **kwargs))
        if (
            output is None
            or output.dtype is not torch.float64
            or any(same(output, leaf) for leaf in leaves.values())
        ):
            return None
        incoming = drawn_like(output)
        gradients = torch.autograd.grad(
            [output], list(leaves.values()), [incoming], allow_unused=True
        )

    def run(changed: Mapping[str, torch.Tensor]) -> torch.Tensor:
        args, kwargs = put(changed)
        with torch.no_grad():
            result = first_output(function(*args, **kwargs), needs_gradient=False)
        return incoming * 0 if result is None else result

    plain = {slot: leaf.detach() for slot, leaf in leaves.items()}
    for (slot, leaf), gradient in zip(plain.items(), gradients, strict=True):
        for number, (name, direction) in enumerate(directions(leaf)):
            told = 0.0 if gradient is None else float((gradient * direction).sum())
            changes = [
                (differences(run, plain, slot, direction * width, incoming), width)
                for width in WIDTHS
            ]
            (first, size), (second, _) = (
                (change / width, terms / width) for (change, terms), width in changes
            )
            if size == 0 or abs(first - second) > SMOOTH * size:
                if number:
                    continue
                return None
            if abs(told - second) > WRONG * size:
                return Replayed(
                    verdict="wrong",
                    slot=slot,
                    error=abs(told - second),
                    tolerance=WRONG * size,
                    got=repr(told),
                    expected=repr(second),
                    reason=f"along {name} the gradient of argument {slot} is {told:.6g}, "
                    f"differences of results give {second:.6g}",
                )
    return None


def directions(leaf: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Every element at once, then the largest alone: errors of many elements, of either sign,
    nearly cancel in a sum.
    """
    width = leaf.abs().mean() or 1.0
    yield "a drawn direction", drawn_like(leaf) * width
    alone = torch.zeros_like(leaf, memory_format=torch.contiguous_format)
    if leaf.numel() > 1:
        alone.view(-1)[leaf.abs().argmax()] = width
        yield "its largest element", alone


def differences(
    run: Callable[[Mapping[str, torch.Tensor]], torch.Tensor],
    tensors: Mapping[str, torch.Tensor],
    slot: str,
    step: torch.Tensor,
    incoming: torch.Tensor,
) -> tuple[float, float]:
    """Half the difference of the results of a step forward and one back, weighted, and the sum of
    the magnitudes of its terms.
    """
    forward, back = (run({**tensors, slot: tensors[slot] + sign * step}) for sign in (1, -1))
    change = (forward - back) * incoming / 2
    return float(change.sum()), float(change.abs().sum())


def first_output(result: Any, *, needs_gradient: bool = True) -> torch.Tensor | None:
    """The first tensor of a result that is differentiable."""
    differentiable = (
        each
        for _, each in Tree(LEAVES).find_result(result)
        if each.is_floating_point() and (each.requires_grad or not needs_gradient)
    )
    return next(differentiable, None)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and bool(torch.equal(one, other))


def drawn_like(tensor: torch.Tensor) -> torch.Tensor:
    """Normally distributed numbers, always the same, of a tensor's shape and type."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(
        dtype=tensor.dtype, device=tensor.device
    )
