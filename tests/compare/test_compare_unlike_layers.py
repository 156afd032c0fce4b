# SPDX-License-Identifier: Apache-2.0
"""Layers that two programs write so differently that little inside of them is of one size: biases
that begin as zeros, in one tensor or several; norms that are one scale when they are evaluated;
rows that are put into the places of experts, or looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import compared, fitted, marked_line, told_lines
from torch import Tensor, nn

ROWS, WIDE, HEADS, STEPS, RATE = 6, 8, 2, 3, 0.05
EXPERTS, PLACES, TOKENS = 3, 4, 12


def batches() -> list[tuple[Tensor, Tensor]]:
    return fitted(51, steps=STEPS, rows=ROWS, wide=WIDE, out=WIDE)


def begun(*shapes: tuple[int, ...]) -> list[Tensor]:
    drawn = torch.Generator().manual_seed(52)
    return [torch.randn(shape, generator=drawn) * 0.4 for shape in shapes]


# Biases of attention in one tensor beside one each, and norms whose gains and biases are stacked


def attention(_: str) -> None:
    inner, outer = begun((3 * WIDE, WIDE), (WIDE, WIDE))
    attend = nn.MultiheadAttention(WIDE, HEADS, batch_first=True)
    norms = nn.ModuleList(nn.LayerNorm(WIDE) for _ in range(3))
    with torch.no_grad():
        attend.in_proj_weight.copy_(inner)
        attend.out_proj.weight.copy_(outer)
    adam = torch.optim.Adam([*attend.parameters(), *norms.parameters()], lr=RATE)
    for x, y in batches():
        given = norms[0](x[None])
        made = norms[1](attend(given, given, given, need_weights=False)[0])  # golden: scaled
        loss = F.mse_loss(norms[2](made[0].tanh()), y)
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()


def attention_by_parts(fault: str) -> None:
    inner, outer = begun((3 * WIDE, WIDE), (WIDE, WIDE))
    weights = [part.T.clone().requires_grad_() for part in (*inner.chunk(3), outer)]
    biases = [torch.zeros(WIDE, requires_grad=True) for _ in weights]
    norms = [torch.stack([torch.ones(WIDE), torch.zeros(WIDE)]).requires_grad_() for _ in range(3)]
    adam = torch.optim.Adam([*weights, *biases, *norms], lr=RATE)
    scale = 1.0 if fault == "scaled" else (WIDE / HEADS) ** -0.5
    for x, y in batches():
        given = F.layer_norm(x, [WIDE], *norms[0])
        q, k, v = (
            (given @ w + b).unflatten(-1, (HEADS, -1)).transpose(0, 1)
            for w, b in zip(weights[:3], biases, strict=False)
        )
        mixed = (q @ k.mT * scale).softmax(-1) @ v  # target: scaled
        made = mixed.transpose(0, 1).flatten(1) @ weights[3] + biases[3]
        made = F.layer_norm(F.layer_norm(made, [WIDE], *norms[1]).tanh(), [WIDE], *norms[2])
        loss = F.mse_loss(made, y)
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()


# What a norm keeps, as one scale that is prepared for an evaluation


def normed(_: str) -> None:
    (weight,) = begun((WIDE, WIDE))
    norm = nn.BatchNorm1d(WIDE)
    into = weight.clone().requires_grad_()
    sgd = torch.optim.SGD([into, *norm.parameters()], lr=RATE)
    for x, y in batches():
        loss = F.mse_loss(norm(x @ into), y)  # golden: momentum
        norm.eval()
        loss = loss + F.mse_loss(norm(y @ into), x)
        norm.train()
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()


def scaled(fault: str) -> None:
    (weight,) = begun((WIDE, WIDE))
    into, gain, bias = weight.clone(), torch.ones(WIDE), torch.zeros(WIDE)
    mean, spread = torch.zeros(WIDE), torch.ones(WIDE)
    trained = [each.requires_grad_() for each in (into, gain, bias)]
    sgd = torch.optim.SGD(trained, lr=RATE)
    share = 0.3 if fault == "momentum" else 0.1
    for x, y in batches():
        rows = x @ into
        wide, middle = torch.var_mean(rows, 0, correction=0)
        with torch.no_grad():
            mean = mean + share * (middle - mean)  # target: momentum
            spread = spread + share * (wide * ROWS / (ROWS - 1) - spread)
        made = (rows - middle) * torch.rsqrt(wide + 1e-5) * gain + bias
        scale = gain * torch.rsqrt(spread + 1e-5)
        aside = F.mse_loss((y @ into) * scale + (bias - mean * scale), x)
        loss = F.mse_loss(made, y) + aside
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()


# Experts that are given their rows by products with places, beside some that look them up


def with_experts(made_of: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> None:
    """A training of experts, of whose rows a function makes something: of the rows, the share of
    the expert of each, which that is, and the experts' weights.
    """
    router, into = (each.requires_grad_() for each in begun((WIDE, EXPERTS), (EXPERTS, WIDE, WIDE)))
    adam = torch.optim.Adam([router, into], lr=RATE)
    for x, y in fitted(53, steps=STEPS, rows=TOKENS, wide=WIDE, out=WIDE):
        best, chosen = (x @ router).softmax(-1).max(-1)
        loss = F.mse_loss(made_of(x, best, chosen, into), y)
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()


def looked_up(_: str) -> None:
    def made_of(x: Tensor, best: Tensor, chosen: Tensor, into: Tensor) -> Tensor:
        made = torch.zeros_like(x)
        for expert in range(EXPERTS):
            rows = (chosen == expert).nonzero()[:PLACES, 0]  # golden: places
            made = made.index_add(0, rows, (x[rows] @ into[expert]).tanh() * best[rows, None])
        return made

    with_experts(made_of)


def put_into_places(fault: str) -> None:
    def made_of(x: Tensor, best: Tensor, chosen: Tensor, into: Tensor) -> Tensor:
        mask = F.one_hot(chosen, EXPERTS).float()
        place = (mask.cumsum(0) - mask).mul(mask).sum(-1).long()
        if fault == "places":
            place = place // 2  # two rows in each
        kept = mask * (place < PLACES).float()[:, None]
        places = F.one_hot(place.clamp(max=PLACES - 1), PLACES).float()  # target: places
        combine = torch.einsum("t,te,tp->tep", best, kept, places)
        given = torch.einsum("tep,tw->epw", (combine > 0).float(), x)
        return torch.einsum("tep,epw->tw", combine, torch.bmm(given, into).tanh())

    with_experts(made_of)


PAIRS = {
    "scaled": (attention_by_parts, attention),
    "momentum": (scaled, normed),
    "places": (put_into_places, looked_up),
}


@pytest.mark.parametrize("fault", PAIRS)
def test_what_is_the_same_is_nothing(tmp_path: Path, fault: str) -> None:
    document = compared(PAIRS[fault], tmp_path).document
    assert (document.complete, document.findings) == (True, ())


@pytest.mark.parametrize("fault", PAIRS)
def test_what_is_wrong_is_told(tmp_path: Path, fault: str) -> None:
    finding = compared(PAIRS[fault], tmp_path, fault).document.findings[0]
    for side in ("target", "golden"):
        assert marked_line(__file__, f"# {side}: {fault}") in told_lines(finding, side)
