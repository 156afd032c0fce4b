# SPDX-License-Identifier: Apache-2.0
"""Substitute `decomposition`: PyTorch's reference decomposition, other code for the same
mathematics.

An in-place operator, and one that writes to `out`, is decomposed as its functional form; what it
would have written is copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from opscope.errors import UnavailableError
from opscope.operators.catalogue import traits_of
from opscope.substitute.arguments import Conditions
from opscope.substitute.perform import perform
from opscope.substitute.schema import find_operator

if TYPE_CHECKING:
    from opscope.substitute.perform import Bound, Performed


class Decomposition:
    """The decomposition in the element types of the call, or in wider ones."""

    name = "decomposition"

    def __init__(self, *, wide: torch.dtype | None = None, device: str | None = None) -> None:
        self.where = Conditions(device=device, wide=wide)

    def lacks(self, op: str) -> str | None:
        try:
            return (
                None
                if decomposition_of(find_operator(op)) is not None
                else f"PyTorch has no decomposition of {op}"
            )
        except UnavailableError as error:
            return str(error)

    def run(self, bound: Bound) -> Performed:
        function = decomposition_of(bound.func) if hasattr(bound.func, "_schema") else None
        if function is None:
            raise UnavailableError(
                f"PyTorch has no decomposition of {bound.call.op}; take float64 or cpu"
            )
        return perform(bound, self.where, function)


def decomposition_of(func: Any) -> Callable[..., Any] | None:
    """A function with the operator's signature, None where there is none."""
    from torch._decomp import decomposition_table

    # torch's entries for these ask for a generator's own stream, or return memory that nobody has
    # written.
    if traits_of(func._schema.name).allocates or torch.Tag.nondeterministic_seeded in func.tags:
        return None
    formula = FORMULAS.get(func._schema.name)
    if formula is not None:
        return formula
    decomposed = decomposition_table.get(func)
    if decomposed is not None:
        return decomposed
    name = func._schema.name.partition("::")[2]
    if name.endswith("_") and not name.endswith("__"):
        functional = decomposition_table.get(_functional(func, name))
        return None if functional is None else _in_place(functional)
    return None


def _functional(func: Any, name: str) -> Any:
    namespace = getattr(torch.ops, func._schema.name.partition("::")[0])
    return getattr(getattr(namespace, name[:-1], None), func._overloadname, None)


def _in_place(functional: Callable[..., Any]) -> Callable[..., Any]:
    def run(first: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return first.copy_(functional(first, *args, **kwargs))

    return run


# Formulas of operators that PyTorch does not decompose, or that only an accelerator has: a
# signature each, plain tensor algebra.

Tensor = torch.Tensor


def mm(a: Tensor, b: Tensor) -> Tensor:
    """Products first, then their sum: no matrix kernel takes part."""
    return (
        torch.stack([(row[:, None] * b).sum(0) for row in a])
        if a.shape[0]
        else a.new_zeros(a.shape[0], b.shape[1])
    )


def bmm(a: Tensor, b: Tensor) -> Tensor:
    return (
        torch.stack([mm(x, y) for x, y in zip(a, b, strict=True)])
        if a.shape[0]
        else a.new_zeros(a.shape[0], a.shape[1], b.shape[2])
    )


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Scaled dot product attention without dropout, and the logarithm of each row's sum of
    exponentials.

    query [B, H, L, E], key [B, G, S, E], value [B, G, S, V]; G divides H.
    """
    if key.shape[1] != query.shape[1]:
        key, value = (
            part.repeat_interleave(query.shape[1] // part.shape[1], 1) for part in (key, value)
        )
    scores = (
        query @ key.transpose(-1, -2) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    )
    if bias is not None:
        scores = scores + bias
    if causal:
        length, width = scores.shape[-2:]
        scores = scores.masked_fill(
            torch.ones(length, width, dtype=torch.bool, device=scores.device).triu(1), float("-inf")
        )
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


def efficient_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, *rest: Any, **named: Any
) -> Any:
    """aten::_scaled_dot_product_efficient_attention(…, compute_log_sumexp, dropout_p, is_causal, *,
    scale).

    Its row sums are padded by the kernel, so only the first output counts.
    """
    _without(nth(rest, 1, named, "dropout_p"))
    causal = bool(nth(rest, 2, named, "is_causal"))
    return (attention(query, key, value, attn_bias, causal=causal, scale=named.get("scale"))[0],)


def flash_attention(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **named: Any) -> Any:
    """aten::_scaled_dot_product_flash_attention(…, dropout_p, is_causal, …, *, attn_mask, scale)
    and its form for the CPU.
    """
    _without(nth(rest, 0, named, "dropout_p"))
    causal = bool(nth(rest, 1, named, "is_causal"))
    return attention(
        query, key, value, named.get("attn_mask"), causal=causal, scale=named.get("scale")
    )


def nth(given: tuple[Any, ...], position: int, named: dict[str, Any], name: str) -> Any:
    """An argument by its place or its name, 0 where it was not given."""
    return given[position] if position < len(given) else named.get(name, 0)


def _without(dropout: float) -> None:
    if dropout:
        raise NotImplementedError(
            "attention with dropout draws random numbers that only its own kernel knows"
        )


# Operator without overload -> its formula.
FORMULAS: dict[str, Callable[..., Any]] = {
    "aten::mm": mm,
    "aten::bmm": bmm,
    "aten::_scaled_dot_product_efficient_attention": efficient_attention,
    "aten::_scaled_dot_product_flash_attention": flash_attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu": flash_attention,
}
