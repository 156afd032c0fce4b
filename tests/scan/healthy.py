# SPDX-License-Identifier: Apache-2.0
"""Small real programs in which nothing is wrong: scan must say "clean". Those with masks are in
healthy_masks.py.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from tests.oldest import IS_OLDEST
from torch import nn

NAN, INF = math.nan, math.inf
PROGRAMS: dict[str, Callable[[], object]] = {}


def healthy(program: Callable[[], object]) -> Callable[[], object]:
    """Register a program under its name."""
    PROGRAMS[program.__name__] = program
    return program


def parameter(*values: float, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=dtype))


def learn(loss: torch.Tensor, *parameters: nn.Parameter) -> None:
    loss.backward()
    torch.optim.SGD(parameters, lr=0.1).step()


def train(
    model: nn.Module, loss: Callable[[], torch.Tensor], *, steps: int = 2, foreach: bool = True
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=foreach)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


# -- the table of docs/soundness.md ----------------------------------------------------------------


@healthy
def log_of_zero_guarded() -> None:
    p = torch.tensor([0.0, 1.0])
    logp = torch.log(p)
    torch.where(p > 0, logp, 0.0).sum()


@healthy
def causal_attention() -> None:
    q = nn.Parameter(torch.randn(2, 4, 8))
    mask = torch.triu(torch.full((4, 4), -INF), diagonal=1)
    learn((torch.softmax(q @ q.transpose(-1, -2) + mask, -1) @ q).pow(2).mean(), q)


@healthy
def half_mask_of_lowest_value() -> None:
    scores = torch.randn(4, 4, dtype=torch.float16) * 30
    mask = torch.triu(torch.full((4, 4), -65504.0, dtype=torch.float16), 1)
    torch.softmax(scores + mask, -1).sum()


@healthy
def half_mask_beyond_lowest_value() -> None:
    scores = torch.full((4, 4), -200.0, dtype=torch.float16)
    mask = torch.triu(torch.full((4, 4), torch.finfo(torch.float16).min, dtype=torch.float16), 1)
    torch.softmax(scores + mask, -1).sum()


@healthy
def unset_memory_overwritten() -> None:
    holder = torch.empty(4)
    holder.copy_(torch.ones(4))
    holder.sum()


@healthy
def a_pass_over_unset_memory_for_shapes_alone() -> None:
    """What torch.distributed.pipelining does before its first step."""
    model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    junk = torch.empty(2, 4)
    ctypes.memset(junk.data_ptr(), 0x7F, 32)  # 3.4e38 each: its variance overflows
    loss = model(junk).square().mean()
    torch.autograd.grad(loss, list(model.parameters()))
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()


@healthy
def foreign_nan_memory_overwritten() -> None:
    STALE.copy_(torch.ones(4))
    STALE.mul_(2.0).sum()
    torch.mul(torch.ones(4), 2, out=STALE_OUT).sum()


@healthy
def scaler_skips_its_first_steps() -> None:
    w = parameter(1.0, 1.0)
    optimizer = torch.optim.SGD([w], lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1e38, backoff_factor=1e-6)
    for _ in range(4):
        optimizer.zero_grad()
        scaler.scale((w * 1e3).sum()).backward()
        scaler.step(optimizer)
        scaler.update()


@healthy
def dropout_and_clipping() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.GELU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(4, 8)).pow(2).mean().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=INF)
    if torch.isfinite(norm):
        optimizer.step()


@healthy
def bfloat16_autocast() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        train(model, lambda: F.cross_entropy(model(torch.randn(4, 8)), torch.tensor([0, 1, 0, 1])))


# -- careful arithmetic ----------------------------------------------------------------------------


@healthy
def safe_norm() -> None:
    x = parameter(0.0, 0.0)
    learn(F.normalize(x, dim=0).sum(), x)


@healthy
def norm_of_zero_backward() -> None:
    x = parameter(0.0, 0.0)
    learn(x.norm(), x)


@healthy
def safe_division() -> None:
    x, y = parameter(1.0, 2.0), torch.tensor([0.0, 2.0])
    safe = torch.where(y == 0, torch.ones_like(y), y)
    learn(torch.where(y == 0, torch.zeros_like(y), x / safe).sum(), x)


@healthy
def binary_cross_entropy_at_the_ends() -> None:
    p = parameter(0.0, 1.0)
    learn(F.binary_cross_entropy(p, torch.tensor([0.0, 1.0])), p)


@healthy
def cross_entropy_with_ignored_targets() -> None:
    w = nn.Parameter(torch.randn(3, 4))
    learn(F.cross_entropy(w, torch.tensor([0, -100, 2]), label_smoothing=0.1), w)


@healthy
def softplus_and_gelu_of_large_values() -> None:
    w = parameter(100.0, -100.0)
    learn((F.softplus(w) + F.gelu(w) + torch.sigmoid(w) + F.silu(w)).sum(), w)


@healthy
def underflow_to_zero() -> None:
    torch.exp(torch.tensor([-200.0])) * 1e-30


@healthy
def layer_norm_of_a_constant() -> None:
    x = nn.Parameter(torch.ones(2, 4))
    learn(F.layer_norm(x, (4,)).sum(), x)


@healthy
def batch_norm_in_train_and_eval() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)
    )
    train(model, lambda: model(torch.randn(3, 1, 4, 4)).pow(2).mean())
    model.eval()
    with torch.no_grad():
        model(torch.randn(3, 1, 4, 4)).sum()


@healthy
def group_norm_and_lstm() -> None:
    lstm, norm = nn.LSTM(4, 4, batch_first=True), nn.GroupNorm(2, 4)
    model = nn.ModuleList([lstm, norm])
    train(
        model,
        lambda: norm(lstm(torch.randn(2, 3, 4))[0].transpose(1, 2)).pow(2).mean(),
        foreach=False,
    )


@healthy
def embedding_with_padding() -> None:
    model = nn.Sequential(nn.Embedding(10, 4, padding_idx=0), nn.Flatten(), nn.Linear(12, 2))
    train(model, lambda: model(torch.tensor([[0, 1, 2], [3, 0, 0]])).pow(2).mean())


@healthy
def gradient_penalty() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    x = torch.randn(2, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    ((gradient.norm(dim=1) - 1) ** 2).mean().backward()


@healthy
def several_optimizers_and_fused_steps() -> None:
    model = nn.Linear(3, 3)
    for optimizer in (
        torch.optim.Adam(model.parameters(), fused=True),
        torch.optim.RMSprop(model.parameters()),
        torch.optim.Adagrad(model.parameters()),
    ):
        optimizer.zero_grad()
        model(torch.randn(2, 3)).pow(2).sum().backward()
        optimizer.step()


@healthy
def learning_from_masked_mean() -> None:
    w = nn.Parameter(torch.randn(2, 3))
    keep = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    learn(((w * keep).sum(1) / keep.sum(1).clamp(min=1e-9)).mean(), w)


@healthy
def clipping_without_a_limit() -> None:
    model = nn.Linear(3, 3)
    model(torch.randn(2, 3)).pow(2).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), INF)


@healthy
def connectionist_temporal_classification() -> None:
    logits = nn.Parameter(torch.randn(10, 2, 5))
    targets = torch.tensor([[1, 2, 3, 4], [1, 2, 1, 2]])
    learn(
        F.ctc_loss(logits.log_softmax(2), targets, torch.tensor([10, 8]), torch.tensor([4, 3])),
        logits,
    )


@healthy
def gradient_of_distances_between_equal_points() -> None:
    points = nn.Parameter(torch.ones(3, 2))
    learn(
        torch.cdist(points, points).sum()
        + F.pdist(points).sum()
        + F.cosine_similarity(points, points * 0).sum(),
        points,
    )


@healthy
def divergence_from_a_sparse_target() -> None:
    w = parameter(0.1, 0.2, 0.3)
    target = torch.tensor([0.0, 0.5, 0.5])
    learn(F.kl_div(w.log_softmax(0), target, reduction="sum") + torch.special.entr(target).sum(), w)


@healthy
def viterbi_decoding() -> None:
    scores, steps = torch.full((4,), -INF), torch.randn(4, 4)
    scores[0], steps[1, 2] = 0.0, -INF
    for _ in range(3):
        scores = (scores[:, None] + steps).max(0).values + torch.randn(4)
    torch.logaddexp(scores, torch.full((4,), -INF)).argmax()


@healthy
def cache_of_keys_that_fills_up() -> None:
    keys, query = torch.empty(1, 2, 8, 4), torch.randn(1, 2, 1, 4)
    for i in range(8):
        keys[:, :, i : i + 1] = torch.randn(1, 2, 1, 4)
        F.scaled_dot_product_attention(query, keys[:, :, : i + 1], keys[:, :, : i + 1])


@healthy
def softmax_of_groups() -> None:
    values, group = torch.randn(5), torch.tensor([0, 0, 1, 1, 2])
    largest = torch.full((4,), -INF).scatter_reduce(0, group, values, "amax")
    weights = (values - largest[group]).exp()
    weights / torch.zeros(4).scatter_add(0, group, weights)[group]


@healthy
def masks_of_pretrained_models() -> None:
    keep, lowest = torch.tensor([[1, 1, 0, 0]]), torch.finfo(torch.float32).min
    causal = torch.full((4, 4), lowest).triu(1)[None, None]
    causal = causal.clone().masked_fill((causal + keep[:, None, None, :].float()) == 0, lowest)
    (torch.randn(1, 2, 4, 4) + causal).softmax(-1)
    extended = (1.0 - keep[:, None, None, :].to(torch.float16)) * torch.finfo(torch.float16).min
    (torch.randn(1, 2, 4, 4).half() * 20 + extended).softmax(-1)


@healthy
def every_other_optimizer() -> None:
    for kind in (
        torch.optim.Adadelta,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.Rprop,
        *([] if IS_OLDEST else [torch.optim.Adafactor]),
    ):
        model = nn.Linear(3, 3)
        optimizer = kind(model.parameters(), lr=0.01)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(2, 3)).pow(2).sum().backward()
            optimizer.step()


@healthy
def whole_transformer_with_padding() -> None:
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    padding = torch.tensor([[0.0, 0.0, 0.0, -INF], [0.0] * 4])
    masks = {
        "src_key_padding_mask": padding,
        "tgt_key_padding_mask": padding,
        "memory_key_padding_mask": padding,
    }
    model(torch.randn(2, 4, 8), torch.randn(2, 4, 8), tgt_mask=causal, **masks).sum().backward()


# -- integers --------------------------------------------------------------------------------------


@healthy
def integer_arithmetic_in_range() -> None:
    index = torch.arange(10)
    (index * 3 + index - 5).abs().sum()
    (torch.tensor([200, 250], dtype=torch.uint8) - 100).float()
    torch.tensor([-0.5, 3.7]).to(torch.uint8)
    torch.tensor([255, 0], dtype=torch.uint8).float() / 255


@healthy
def hashing_that_cannot_be_proven_to_wrap() -> None:
    a = torch.tensor([1, 2**40], dtype=torch.int64)
    b = torch.tensor([2**40, 3], dtype=torch.int64)
    (a * b) & 0xFFFF


@healthy
def integer_bounds_as_sentinels() -> None:
    first = torch.full((3,), torch.iinfo(torch.int64).max)
    torch.minimum(first, torch.tensor([1, 2, 3]))
    torch.full((3,), torch.iinfo(torch.int32).min, dtype=torch.int32).max()


@healthy
def shifts_and_bit_packing() -> None:
    bits = torch.tensor([1, 2, 3], dtype=torch.int32)
    (bits << 30) | bits
    bits ^ (bits >> 1)


@healthy
def quantisation_with_clamp() -> None:
    x = torch.randn(8) * 100
    torch.clamp((x / 0.5).round(), -128, 127).to(torch.int8).float() * 0.5
    torch.clamp(x, -448, 448).to(torch.float8_e4m3fn).float()
    x.clamp(-65504, 65504).half()


@healthy
def one_hot_and_gather() -> None:
    target = torch.tensor([0, 2, 1])
    (F.one_hot(target, 3).float() * torch.log_softmax(torch.randn(3, 3), -1)).sum()


# What no recorded call produced.
STALE = torch.full((4,), NAN)
STALE_OUT = torch.full((4,), NAN)
