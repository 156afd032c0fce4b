# SPDX-License-Identifier: Apache-2.0
"""Formulas of operators that PyTorch does not decompose, or that only an accelerator has: a
signature each, plain tensor algebra.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

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
