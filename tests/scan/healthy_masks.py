# SPDX-License-Identifier: Apache-2.0
"""Healthy programs that hold infinities or NaN on purpose: masks, bounds, placeholders."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.oldest import IS_OLDEST
from tests.scan.healthy import INF, NAN, PROGRAMS, healthy, learn, parameter, train
from torch import nn

__all__ = ["PROGRAMS"]


# -- masks -----------------------------------------------------------------------------------------


@healthy
def scaled_dot_product_attention() -> None:
    q = nn.Parameter(torch.randn(1, 2, 4, 8))
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    learn(F.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum(), q)


@healthy
def scaled_dot_product_attention_with_an_empty_row() -> None:
    q = nn.Parameter(torch.randn(1, 2, 4, 8))
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    mask[0] = False
    if IS_OLDEST:
        pytest.skip("torch 2.4: such a row is NaN")
    learn(F.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum(), q)


@healthy
def scaled_dot_product_attention_causal() -> None:
    q = nn.Parameter(torch.randn(1, 2, 4, 8))
    learn(F.scaled_dot_product_attention(q, q, q, is_causal=True).sum(), q)


@healthy
def multihead_attention_with_padding() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 4, 8)
    padding = torch.tensor([[False, False, True, True], [False] * 4])
    train(attention, lambda: attention(x, x, x, key_padding_mask=padding)[0].pow(2).mean())


@healthy
def transformer_encoder_layer() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    train(layer, lambda: layer(torch.randn(2, 4, 8), src_mask=mask, is_causal=True).pow(2).mean())


@healthy
def transformer_encoder_layer_in_eval() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        layer(
            torch.randn(2, 4, 8),
            src_key_padding_mask=torch.tensor([[False, False, True, True], [False] * 4]),
        ).sum()


@healthy
def causal_mask_buffer_made_before() -> None:
    torch.softmax(torch.randn(4, 4) + MASK, -1).sum()


@healthy
def additive_padding_mask_of_float_minimum() -> None:
    padding = torch.tensor([1.0, 1.0, 0.0])
    mask = (1.0 - padding) * torch.finfo(torch.float32).min
    torch.softmax(torch.randn(2, 3) - 1e32 + mask, -1).sum()


@healthy
def float_minimum_mask_cast_to_half() -> None:
    mask = torch.triu(torch.full((4, 4), torch.finfo(torch.float32).min), 1)
    torch.softmax(torch.randn(4, 4, dtype=torch.float16) + mask.half(), -1).sum()


@healthy
def large_negative_mask_cast_to_half() -> None:
    mask = torch.triu(torch.full((4, 4), -1e9), 1)
    torch.softmax(torch.randn(4, 4, dtype=torch.float16) + mask.half(), -1).sum()


@healthy
def two_masks_added() -> None:
    causal = torch.triu(torch.full((4, 4), torch.finfo(torch.float16).min, dtype=torch.float16), 1)
    padding = torch.zeros(4, dtype=torch.float16).masked_fill(
        torch.tensor([False, False, False, True]), torch.finfo(torch.float16).min
    )
    torch.softmax(causal + padding, -1).sum()


@healthy
def alibi_with_mask() -> None:
    q = torch.randn(2, 4, 8)
    bias = torch.baddbmm(torch.triu(torch.full((2, 4, 4), -INF), 1), q, q.transpose(1, 2))
    torch.softmax(bias, -1).sum()


@healthy
def log_of_a_zero_one_mask() -> None:
    keep = torch.ones(4, 4).tril()
    torch.softmax(torch.randn(4, 4) + keep.log(), -1).sum()


@healthy
def log_softmax_of_impossible_classes() -> None:
    w = parameter(1.0, 2.0, 3.0)
    logits = w.masked_fill(torch.tensor([True, False, False]), -INF).unsqueeze(0)
    learn(F.cross_entropy(logits, torch.tensor([1])), w)


@healthy
def logsumexp_with_masks() -> None:
    w = parameter(1.0, 2.0, 3.0)
    learn(torch.logsumexp(w.masked_fill(torch.tensor([True, False, False]), -INF), 0), w)


@healthy
def log_probability_of_a_masked_policy() -> None:
    w = parameter(1.0, 2.0, 3.0)
    logits = w.masked_fill(torch.tensor([True, False, False]), -INF)
    policy = torch.distributions.Categorical(logits=logits)
    learn(-policy.log_prob(torch.tensor(2)) + 0.01 * policy.entropy(), w)


@healthy
def masked_assignment_of_scores() -> None:
    scores = torch.randn(3, 3)
    scores[torch.eye(3, dtype=torch.bool)] = -INF
    scores[0, 2] = -INF
    torch.softmax(scores, -1).sum()


@healthy
def top_k_sampling() -> None:
    logits = torch.randn(2, 8)
    kept = torch.topk(logits, 3).values[:, -1:]
    probabilities = torch.softmax(logits.masked_fill(logits < kept, -INF), -1)
    torch.multinomial(probabilities, 1)


@healthy
def nucleus_sampling() -> None:
    logits = torch.randn(2, 8)
    ordered, index = torch.sort(logits, descending=True)
    drop = torch.cumsum(torch.softmax(ordered, -1), -1) > 0.9
    drop[:, 0] = False
    ordered = ordered.masked_fill(drop, -INF)
    restored = torch.full_like(logits, -INF).scatter(1, index, ordered)
    torch.argmax(restored, -1)


@healthy
def beam_search() -> None:
    scores = torch.full((4,), -INF)
    scores[0] = 0.0
    for _ in range(3):
        total = scores[:, None] + torch.log_softmax(torch.randn(4, 5), -1)
        scores, _ = torch.topk(total.view(-1), 4)
    scores.argmax()


@healthy
def running_maximum() -> None:
    best = torch.full((3,), -INF)
    for _ in range(3):
        best = torch.maximum(best, torch.randn(3))
    torch.cummax(torch.tensor([-INF, 1.0, 2.0]), 0)
    best.sum()


@healthy
def max_pooling_with_padding() -> None:
    x = nn.Parameter(torch.randn(1, 1, 4, 4))
    learn(F.max_pool2d(F.pad(x, (1, 1, 1, 1), value=-INF), 2).sum(), x)


@healthy
def scatter_maximum() -> None:
    start = torch.full((4,), -INF)
    found = start.scatter_reduce(
        0, torch.tensor([0, 0, 1]), torch.tensor([1.0, 2.0, 3.0]), "amax", include_self=True
    )
    torch.where(torch.isinf(found), torch.zeros_like(found), found).sum()


# -- infinities that are bounds --------------------------------------------------------------------


@healthy
def best_loss_so_far() -> None:
    best = torch.tensor(INF)
    for value in (3.0, 2.0):
        loss = torch.tensor(value)
        if loss < best:
            best = loss.clone()
    best.item()


@healthy
def infinite_start_of_a_minimum() -> None:
    nearest = torch.full((3,), INF)
    for _ in range(2):
        nearest = torch.minimum(nearest, torch.rand(3))
    nearest.sum()


@healthy
def distances_without_self() -> None:
    points = torch.randn(4, 2)
    distance = torch.cdist(points, points).fill_diagonal_(INF)
    distance.min(dim=1).values.sum()
    torch.exp(-distance).sum()
    (1 / distance).sum()


@healthy
def negated_scores_with_masks() -> None:
    scores = torch.randn(4).masked_fill(torch.tensor([True, False, False, False]), -INF)
    torch.argsort(-scores)
    torch.topk(-scores, 1, largest=False)


@healthy
def clamp_with_infinite_bounds() -> None:
    torch.clamp(torch.randn(4), -INF, INF).sum()
    torch.nan_to_num(torch.randn(4), posinf=INF).sum()


@healthy
def comparison_with_infinity() -> None:
    limits = torch.tensor([INF, 1.0])
    (torch.randn(2) < limits).sum()
    (limits == INF).any()


@healthy
def early_stopping_state() -> None:
    w = parameter(1.0, 2.0)
    best = torch.full((), INF)
    for _ in range(3):
        loss = (w**2).sum()
        learn(loss, w)
        w.grad = None
        best = torch.min(best, loss.detach())


# -- NaN on purpose --------------------------------------------------------------------------------


@healthy
def placeholders_that_are_asked_for() -> None:
    x = torch.where(torch.tensor([True, False]), torch.randn(2), torch.tensor(NAN))
    torch.nanmean(x)
    if torch.isnan(OUTSIDE).any():
        torch.randn(2).sum()


@healthy
def results_filled_in_later() -> None:
    table = torch.full((3, 2), NAN)
    for i in range(3):
        table[i] = torch.randn(2)
    table.mean()


@healthy
def finite_check() -> None:
    for value in (torch.randn(3), torch.tensor([INF, 1.0])):
        torch.isfinite(value).all()
        torch.isinf(value).any()


# What no recorded call produced.
OUTSIDE = torch.tensor([1.0, NAN])
MASK = torch.triu(torch.full((4, 4), -INF), 1)
