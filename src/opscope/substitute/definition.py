# SPDX-License-Identifier: Apache-2.0
"""Substitute `definition`: an operator by its mathematics, in other words than torch's own kernels
and decompositions have it.

Here stand operators whose kernel errs in every element type alike, so that float64 tells nothing of
it. Each takes the operator's arguments in float64 and gives its results, by a formula that keeps
its digits; a result that it does not speak of is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from opscope.errors import UnavailableError
from opscope.substitute.arguments import Conditions
from opscope.substitute.perform import perform

if TYPE_CHECKING:
    from opscope.substitute.perform import Bound, Performed

Tensor = torch.Tensor


class Definition:
    """The call in float64 by a formula of ours."""

    name = "definition"

    def lacks(self, op: str) -> str | None:
        return (
            None
            if op.partition(".")[0] in {*DEFINITIONS, *OF_COMPLEX}
            else f"no definition of {op} is known here"
        )

    def run(self, bound: Bound) -> Performed:
        function = defined(bound)
        if function is None:
            raise UnavailableError(self.lacks(bound.call.op) or "")
        return perform(bound, Conditions(device="cpu", wide=torch.float64), function)


def defined(bound: Bound) -> Callable[..., Any] | None:
    """The definition of a call's operator; some speak of complex numbers alone."""
    name = bound.call.op.partition(".")[0]
    if any(laid.dtype.startswith("complex") for laid in bound.call.tensors.values()):
        return DEFINITIONS.get(name) or OF_COMPLEX.get(name)
    return DEFINITIONS.get(name)


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """x Phi(x), by the complementary error function; x sigmoid(2u) where its approximation by
    tanh(u) is asked for.
    """
    if approximate == "tanh":
        share = (2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)).sigmoid()
    else:
        share = 0.5 * torch.erfc(-x / math.sqrt(2))
    return torch.where((x == -math.inf) | x.isnan(), math.nan, x * share)


def i0(x: Tensor) -> Tensor:
    """exp(|x|) times its scaled form, in one exponential."""
    product: Tensor = (x.abs() + torch.special.i0e(x).log()).exp()
    return product


def i1(x: Tensor) -> Tensor:
    scaled: Tensor = torch.special.i1e(x)
    return scaled.sign() * (x.abs() + scaled.abs().log()).exp()


def zeta(x: Any, q: Any) -> Tensor:
    """Hurwitz' zeta function, whose terms all vanish as q grows."""
    x, q = torch.as_tensor(x, dtype=torch.float64), torch.as_tensor(q, dtype=torch.float64)
    return torch.where((q == math.inf) & (x > 1), 0.0, torch.special.zeta(x, q))


def polygamma(n: int, x: Tensor) -> Tensor:
    """It has poles at 0, -1, -2, ...: of even order, where it is infinite, for odd n; of odd order,
    where it has no value, for even n.
    """
    poles = (x <= 0) & (x == x.floor())
    values: Tensor = torch.ops.aten.polygamma(n, x)
    return torch.where(poles, math.inf, values) if n % 2 else values


def igamma(a: Tensor, x: Tensor) -> Tensor:
    """The regularised incomplete gamma function, which has no value where an argument has none."""
    return torch.where(a.isnan() | x.isnan(), math.nan, torch.igamma(a, x))


def igammac(a: Tensor, x: Tensor) -> Tensor:
    return torch.where(a.isnan() | x.isnan(), math.nan, torch.igammac(a, x))


def complex_sum(x: Any, y: Any, *, alpha: Any = 1, sign: int = 1) -> Tensor:
    """Real and imaginary parts added by themselves: none of them reaches the other."""
    if alpha != 1:
        raise NotImplementedError("a factor mixes the parts")
    x, y = (torch.as_tensor(each, dtype=torch.complex128) for each in (x, y))
    parts = torch.view_as_real(x.resolve_conj()) + sign * torch.view_as_real(y.resolve_conj())
    return torch.view_as_complex(parts)


def complex_difference(x: Any, y: Any, *, alpha: Any = 1) -> Tensor:
    return complex_sum(x, y, alpha=alpha, sign=-1)


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, *rest: Any, **named: Any
) -> tuple[Tensor, ...]:
    """Sum, mean or maximum of the rows that each bag names: from its offset to the next one, or to
    the end.
    """
    _, mode, _, weights, last, padding = arguments(
        rest,
        named,
        "scale_grad_by_freq",
        "mode",
        "sparse",
        "per_sample_weights",
        "include_last_offset",
        "padding_idx",
        usual=(False, 0, False, None, False, -1),
    )
    ends = [*offsets.tolist()[1:], *(() if last else (len(indices),))]
    bags = []
    for start, end in zip(offsets.tolist(), ends, strict=False):
        kept = torch.arange(start, end)
        kept = kept[indices[kept] != padding] if padding is not None and padding >= 0 else kept
        rows = weight[indices[kept]]
        rows = rows if weights is None else rows * weights[kept, None]
        bags.append(reduced(rows, mode))
    return (torch.stack(bags) if bags else weight.new_zeros(0, weight.shape[1]),)


def reduced(rows: Tensor, mode: int) -> Tensor:
    """The sum, mean or maximum (0, 1, 2) of rows; 0 of none."""
    if not len(rows):
        return rows.new_zeros(rows.shape[1])
    return (rows.sum(0), rows.mean(0), rows.amax(0))[mode]


def embedding_bag_backward(grad: Tensor, indices: Tensor, offsets: Tensor, *rest: Any) -> Tensor:
    """Each index's row gets the gradient of its bag, weighed as the forward call was, divided by
    how often the index stands there.

    rest is offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, sparse,
    per_sample_weights, padding_idx.
    """
    _, sizes, _, count, by_frequency, mode, sparse, weights, padding = (*rest, -1)[:9]
    if mode == 2 or sparse:
        raise NotImplementedError(
            "the gradient of a maximum goes where the forward call says, a sparse one has no "
            "plain memory"
        )
    bag = (
        torch.searchsorted(offsets, torch.arange(len(indices), dtype=offsets.dtype), right=True) - 1
    )
    indices, bag = indices[bag < len(grad)], bag[bag < len(grad)]
    rows = grad[bag] / (sizes[bag][:, None].clamp(min=1) if mode == 1 else 1)
    rows = rows if weights is None else rows * weights[: len(bag), None]
    if by_frequency:
        rows = rows / torch.bincount(indices, minlength=count)[indices][:, None]
    result = grad.new_zeros(count, grad.shape[1])
    for index, row in zip(indices.tolist(), rows, strict=True):
        if index != padding:
            result[index] += row
    return result


def arguments(
    rest: tuple[Any, ...], named: dict[str, Any], *names: str, usual: tuple[Any, ...]
) -> list[Any]:
    """Values of arguments that may be given by place or by name."""
    return [
        rest[number] if number < len(rest) else named.get(name, usual[number])
        for number, name in enumerate(names)
    ]


# Operator without overload -> its definition.
DEFINITIONS: dict[str, Callable[..., Any]] = {
    "aten::gelu": gelu,
    "aten::i0": i0,
    "aten::special_i1": i1,
    "aten::special_zeta": zeta,
    "aten::polygamma": polygamma,
    "aten::igamma": igamma,
    "aten::igammac": igammac,
    "aten::special_gammainc": igamma,
    "aten::special_gammaincc": igammac,
    "aten::_embedding_bag": embedding_bag,
    "aten::_embedding_bag_forward_only": embedding_bag,
    "aten::_embedding_bag_backward": embedding_bag_backward,
}
# The same, of calls on complex numbers.
OF_COMPLEX: dict[str, Callable[..., Any]] = {
    "aten::add": complex_sum,
    "aten::sub": complex_difference,
}
