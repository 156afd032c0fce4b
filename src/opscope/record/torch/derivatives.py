# SPDX-License-Identifier: Apache-2.0
"""Whether the gradient formula of a program's own operator is the derivative of the operator: by
central differences in float64.

No trusted process has such an operator, so the operator itself is asked: its schema promises that
it writes to nothing. What
has no derivative there is left alone: results that do not change with an argument (rounding, whose
formula passes gradients straight through on purpose), results that are an argument (reversed or
scaled gradients), and kinks, where two step widths give two answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from opscope.judge.replayed import Replayed
from opscope.kernels.arguments import Tree
from opscope.record.torch.capture import LEAVES

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
