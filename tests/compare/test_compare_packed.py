# SPDX-License-Identifier: Apache-2.0
"""A product that is packed and cut, beside products of its parts, a token at a time; weights and
their updates in one flat tensor, beside those of torch; heads that are repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import opscope

WORDS, WIDE, HEADS, SIZE, LONG, STEPS = 11, 8, 4, 2, 6, 3
KEYS = HEADS // 2


class Model(nn.Module):
    """Tokens, two norms' gains, a packed projection, decays and a way out; written out below."""

    def __init__(self, mixed: Callable[[Model, Tensor], Tensor]) -> None:
        super().__init__()
        held = torch.Generator().manual_seed(5)
        shapes = {
            "words": (WORDS, WIDE), "packed": (2 * WIDE + HEADS, WIDE), "taps": (WIDE, 3),
            "first": (WIDE,), "second": (WIDE,), "out": (WIDE, WORDS),
        }  # fmt: skip
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape, generator=held) * 0.6))
        self.mixed = mixed

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words[tokens]
        x = x + self.mixed(self, functional.rms_norm(x, (WIDE,), 1 + self.first, 1e-6))
        return functional.rms_norm(x, (WIDE,), 1 + self.second, 1e-6) @ self.out


def at_once(model: Model, x: Tensor) -> Tensor:
    gate, inside, rate = (x @ model.packed.T).split([WIDE, WIDE, HEADS], dim=-1)
    inside = functional.conv1d(inside.transpose(1, 2), model.taps[:, None], padding=2, groups=WIDE)
    inside = functional.silu(inside[..., :LONG].transpose(1, 2))
    kept = torch.exp(-functional.softplus(rate)).repeat_interleave(SIZE, -1)
    return kept * inside * torch.sigmoid(gate)


def by_tokens(model: Model, x: Tensor, *, late: bool = False) -> Tensor:
    to_gate, to_inside, to_rate = model.packed.split([WIDE, WIDE, HEADS])
    past = torch.zeros(len(x), 3, WIDE)
    read = []
    for token in x.unbind(1):
        fresh = (token @ to_inside.T)[:, None]
        past = torch.cat([fresh, past[:, :-1]] if late else [past[:, 1:], fresh], dim=1)
        inside = (past * model.taps.T).sum(1)
        inside = inside * torch.sigmoid(inside)
        rate = functional.softplus(token @ to_rate.T)
        read.append(torch.exp(-rate).repeat_interleave(SIZE, -1) * inside)
    return torch.stack(read, 1) * torch.sigmoid(x @ to_gate.T)


def attended(model: Model, x: Tensor, *, repeat: bool | None = None) -> Tensor:
    """Heads that share keys: written out, or as one call with keys repeated in one of two ways."""
    packed = (x @ model.packed[: WIDE + 2 * KEYS * SIZE].T).unflatten(-1, (-1, SIZE))
    query, key, value = packed.transpose(1, 2).split([HEADS, KEYS, KEYS], dim=1)
    if repeat is None:
        key, value = (one[:, :, None].expand(-1, -1, 2, -1, -1) for one in (key, value))
        scores = query @ key.flatten(1, 2).transpose(2, 3) / SIZE**0.5
        read = torch.softmax(scores, dim=-1) @ value.flatten(1, 2)
    else:
        key, value = heads(key, repeat=repeat), heads(value, repeat=repeat)
        read = functional.scaled_dot_product_attention(query, key, value)
    return read.transpose(1, 2).flatten(2)


def heads(one: Tensor, *, repeat: bool) -> Tensor:
    return one.repeat(1, 2, 1, 1) if repeat else one.repeat_interleave(2, 1)


class Flat:
    """Descent of weights that lie in one tensor, written out."""

    def __init__(self, weights: nn.Parameter, decay: float) -> None:
        self.weights, self.decay = weights, decay

    @torch.no_grad()
    def step(self) -> None:
        assert self.weights.grad is not None
        self.weights.mul_(1 - 0.1 * self.decay)
        self.weights.add_(self.weights.grad, alpha=-0.1)


def recorded(to: Path, mixed: Callable[[Model, Tensor], Tensor], flat: float | None = None) -> Path:
    """A training; flat: the gains are one tensor with an optimizer of its own, which decays."""
    with opscope.record(to, values="none"):
        model = Model(mixed)
        decayed = [weight for weight in model.parameters() if weight.dim() > 1]
        groups = [{"params": decayed, "weight_decay": 0.1}]
        optimizers = list[Any]()
        if flat is None:
            groups.append({"params": [model.first, model.second], "weight_decay": 0.0})
        else:
            gains = nn.Parameter(torch.cat([model.first.detach(), model.second.detach()]))
            del model.first, model.second
            optimizers.append(Flat(gains, flat))
        optimizers.append(torch.optim.SGD(groups, lr=0.1))
        held = torch.Generator().manual_seed(7)
        for _ in range(STEPS):
            tokens = torch.randint(0, WORDS, (3, LONG + 1), generator=held)
            model.zero_grad()
            if flat is not None:
                gains.grad = None
                model.first, model.second = gains.split(WIDE)  # type: ignore[assignment]
            scores = model(tokens[:, :-1])
            functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            for optimizer in optimizers:
                optimizer.step()
    return to


def named(target: Path, golden: Path) -> str:
    """The text of the lines of this file that the first finding names on the target's side."""
    first = opscope.compare(target, golden).findings[0]
    spans = [first.source or "", *first.evidence[0].get("target_lines", [])]
    lines, found = Path(__file__).read_text(encoding="utf-8").splitlines(), []
    for span in spans:
        begin, _, end = span.rpartition(":")[2].partition("-")
        found += lines[int(begin) - 1 : int(end or begin)]
    return "\n".join(found)


def test_parts_of_a_product_agree_again_each_by_itself(tmp_path: Path) -> None:
    golden = recorded(tmp_path / "golden", at_once)
    healthy = recorded(tmp_path / "healthy", by_tokens)
    turned = recorded(tmp_path / "late", lambda model, x: by_tokens(model, x, late=True))
    assert opscope.compare(healthy, golden).findings == ()
    assert "past[:, :-1]" in named(turned, golden)


def test_what_orders_the_heads_is_named(tmp_path: Path) -> None:
    golden = recorded(tmp_path / "golden", attended)
    healthy = recorded(tmp_path / "healthy", lambda model, x: attended(model, x, repeat=False))
    repeated = recorded(tmp_path / "repeated", lambda model, x: attended(model, x, repeat=True))
    assert opscope.compare(healthy, golden).findings == ()
    assert "one.repeat(1, 2, 1, 1)" in named(repeated, golden)


def test_the_update_is_named_not_what_reads_its_parameters(tmp_path: Path) -> None:
    golden = recorded(tmp_path / "golden", at_once)
    healthy = recorded(tmp_path / "healthy", at_once, flat=0.0)
    decayed = recorded(tmp_path / "decayed", at_once, flat=0.1)
    assert opscope.compare(healthy, golden).findings == ()
    assert "self.weights.mul_(" in named(decayed, golden)
