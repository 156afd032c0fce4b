# SPDX-License-Identifier: Apache-2.0
"""Programs that somebody else has written again in another manner: norms of all layers in one
tensor, averages that are evaluated within each step, tables in one, attention that leaves padding
to the loss, penalties beside decay.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from tests.compare.told_lines import compared, fitted, marked_line, told_lines
from torch import Tensor, nn
from torch.nn import functional as F

WIDE, ROWS, LAYERS, STEPS, RATE, KEPT = 8, 6, 2, 4, 1e-4, 0.8
TOKENS, VOCABULARY, LENGTH = 4, 20, 7
TABLES = (9, 5, 12)

Made = TypeVar("Made", bound=nn.Module)


def batches() -> list[tuple[Tensor, Tensor]]:
    return fitted(41, steps=STEPS, rows=ROWS, wide=WIDE, out=WIDE)


# Norms of all layers, gains beside biases, in one tensor


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.behind = nn.LayerNorm(WIDE), nn.LayerNorm(WIDE)
        self.up, self.down = nn.Linear(WIDE, 2 * WIDE), nn.Linear(2 * WIDE, WIDE)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.gelu(self.up(self.before(x)))  # golden: gelu
        made: Tensor = self.behind(x + self.down(wide))
        return made


def drawn(made: type[Made], count: int = 1) -> list[Made]:
    torch.manual_seed(42)
    return [made() for _ in range(count)]


def norms(_: str) -> None:
    net = nn.Sequential(*drawn(Normed, LAYERS))
    adam = torch.optim.Adam(net.parameters(), lr=RATE)
    for x, y in batches():
        loss = F.mse_loss(net(x), y)
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()


def joined(fault: str) -> None:
    layers = drawn(Normed, LAYERS)
    names = ("before", "behind")
    w = {
        name: torch.stack([torch.stack([*getattr(layer, name).parameters()]) for layer in layers])
        for name in names
    }
    for name in ("up", "down"):
        linear = [getattr(layer, name) for layer in layers]
        w[name] = torch.stack([each.weight.mT for each in linear])
        w[f"{name}_b"] = torch.stack([each.bias for each in linear])
    w = {name: value.detach().clone() for name, value in w.items()}
    means = {name: torch.zeros_like(value) for name, value in w.items()}
    squares = {name: torch.zeros_like(value) for name, value in w.items()}

    def norm(x: Tensor, both: Tensor) -> Tensor:
        off = x - x.mean(-1, keepdim=True)
        return off / torch.sqrt(off.square().mean(-1, keepdim=True) + 1e-5) * both[0] + both[1]

    for step, (x, y) in enumerate(batches(), 1):
        leaves = {name: value.requires_grad_() for name, value in w.items()}
        made = x
        for at in range(LAYERS):
            wide = norm(made, leaves["before"][at]) @ leaves["up"][at] + leaves["up_b"][at]
            wide = F.gelu(wide, approximate="tanh" if fault == "gelu" else "none")  # target: gelu
            wide = wide @ leaves["down"][at] + leaves["down_b"][at]
            made = norm(made + wide, leaves["behind"][at])
        grads = torch.autograd.grad((made - y).square().mean(), [*leaves.values()])
        for name, grad in zip(leaves, grads, strict=True):
            means[name] = 0.9 * means[name] + 0.1 * grad
            squares[name] = 0.999 * squares[name] + 0.001 * grad * grad
            off = (squares[name] / (1 - 0.999**step)).sqrt() + 1e-8
            w[name] = w[name].detach() - RATE * (means[name] / (1 - 0.9**step)) / off


# An average that is evaluated within each step, and attention with biases of which some train of
# rounding alone


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(0.3 * torch.randn(1, 1, WIDE))
        self.places = nn.Parameter(0.3 * torch.randn(1, TOKENS + 1, WIDE))
        self.stem = nn.Linear(WIDE // TOKENS, WIDE)
        self.norm = nn.LayerNorm(WIDE)
        self.attention = nn.MultiheadAttention(WIDE, 2, batch_first=True)
        self.head = nn.Linear(WIDE, WIDE)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.view(len(x), TOKENS, -1))
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places  # golden: places
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        made: Tensor = self.head(x[:, 0])
        return made


def tower(_: str) -> None:
    net = drawn(Tower)[0]
    slow = copy.deepcopy(net).requires_grad_(requires_grad=False)
    adam = torch.optim.Adam(net.parameters(), lr=100 * RATE)
    for x, y in batches():
        loss = F.mse_loss(net(x), y)
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()  # golden: rate
        with torch.no_grad():
            for mine, theirs in zip(slow.parameters(), net.parameters(), strict=True):
                mine.mul_(KEPT).add_(theirs, alpha=1 - KEPT)  # golden: early
            F.mse_loss(slow(y), x).item()


class Own(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.inner, self.fault = drawn(Tower)[0], fault

    def forward(self, x: Tensor) -> Tensor:
        tower = self.inner
        places = tower.places[0]
        rows = tower.stem(x.view(len(x), TOKENS, -1)) + places[1:]  # target: places
        first = tower.first[0] if self.fault == "places" else tower.first[0] + places[:1]
        rows = torch.cat([first.expand(len(x), 1, -1), rows], 1)  # target: places
        weight, bias = tower.attention.in_proj_weight, tower.attention.in_proj_bias
        q, k, v = F.linear(tower.norm(rows), weight, bias).chunk(3, -1)
        q, k, v = (each.view(*each.shape[:2], 2, -1).transpose(1, 2) for each in (q, k, v))
        mixed = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v
        rows = rows + tower.attention.out_proj(mixed.transpose(1, 2).flatten(2))
        made: Tensor = tower.head(rows[:, 0])
        return made


def own(fault: str) -> None:
    net = Own(fault)
    weights = [*net.parameters()]
    slow = [weight.detach().clone() for weight in weights]
    shadow = dict(zip((name for name, _ in net.named_parameters()), slow, strict=True))
    means, squares = [torch.zeros_like(w) for w in weights], [torch.zeros_like(w) for w in weights]
    for step, (x, y) in enumerate(batches(), 1):
        grads = torch.autograd.grad(F.mse_loss(net(x), y), weights)
        held = [w.detach().clone() for w in weights]
        with torch.no_grad():
            for w, grad, mean, square in zip(weights, grads, means, squares, strict=True):
                mean.mul_(0.9).add_(grad, alpha=0.1)
                square.mul_(0.999).addcmul_(grad, grad, value=0.001)
                off = (square / (1 - 0.999**step)).sqrt_().add_(1e-8)
                rate = 200 * RATE if fault == "rate" and step > 2 else 100 * RATE
                w.addcdiv_(mean, off, value=-rate / (1 - 0.9**step))  # target: rate
            new = held if fault == "early" else [w.detach() for w in weights]
            torch._foreach_lerp_(slow, new, 1 - KEPT)  # target: early
            F.mse_loss(torch.func.functional_call(net, shadow, (y,)), x).item()


# Averages that are computed anew, and what is averaged made smaller first


def averaged(_: str) -> None:
    net, slow = drawn(Normed)[0], drawn(Normed)[0].requires_grad_(requires_grad=False)
    sgd = torch.optim.SGD(net.parameters(), lr=100 * RATE)
    for at, (x, y) in enumerate(batches()):
        with torch.no_grad():
            soft = slow(x)
        loss = F.mse_loss(net(x), y) + F.mse_loss(net(x), soft)
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()
        with torch.no_grad():
            for mine, theirs in zip(slow.parameters(), net.parameters(), strict=True):
                mine.lerp_(theirs, 1 - min(KEPT, (1 + at) / (3 + at)))  # golden: warm


def averaged_anew(fault: str) -> None:
    layer = drawn(Normed)[0]
    w = {name: value.detach().clone() for name, value in layer.named_parameters()}
    slow = dict(w)
    for at, (x, y) in enumerate(batches()):
        leaves = {name: value.detach().requires_grad_() for name, value in w.items()}
        with torch.no_grad():
            soft = torch.func.functional_call(layer, slow, (x,))
        out = torch.func.functional_call(layer, leaves, (x,))
        loss = ((out - y).square() + (out - soft).square()).mean()
        grads = torch.autograd.grad(loss, [*leaves.values()])
        w = {
            name: leaf.detach() - 100 * RATE * grad
            for (name, leaf), grad in zip(leaves.items(), grads, strict=True)
        }
        kept = KEPT if fault == "warm" else min(KEPT, (1 + at) / (3 + at))
        slow = {name: kept * slow[name] + (1 - kept) * w[name] for name in w}  # target: warm


# Tables in one, with a number for each row


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ParameterList(3.0 * torch.randn(rows, WIDE) for rows in TABLES)
        self.layers = nn.Sequential(*(nn.Linear(WIDE, WIDE) for _ in range(4)))

    def forward(self, ids: Tensor) -> Tensor:
        held = [F.embedding(ids[:, at], table) for at, table in enumerate(self.tables)]
        made: Tensor = self.layers(torch.stack(held).sum(0))
        return made


def chosen() -> list[tuple[Tensor, Tensor]]:
    made = torch.Generator().manual_seed(43)
    ids = [[torch.randint(rows, (24,), generator=made) for rows in TABLES] for _ in range(STEPS)]
    return [(torch.stack(each, 1), torch.randn(24, WIDE, generator=made)) for each in ids]


def tables(_: str) -> None:
    net = drawn(Bags)[0]
    inner = [weight for name, weight in net.named_parameters() if "tables" not in name]
    sgd = torch.optim.SGD(inner, lr=0.05)
    held = [*net.tables]
    sums = [torch.zeros(len(weight), 1) for weight in held]
    for ids, y in chosen():
        loss = F.mse_loss(net(ids), y)
        net.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()
        with torch.no_grad():
            for weight, total in zip(held, sums, strict=True):
                assert weight.grad is not None
                total.add_(weight.grad.pow(2).mean(1, keepdim=True))  # golden: mean
                weight.addcdiv_(weight.grad, total.sqrt() + 1e-8, value=-0.05)


def one_table(fault: str) -> None:
    net = drawn(Bags)[0]
    w = {name: value.detach().clone() for name, value in net.layers.named_parameters()}
    w["table"] = torch.cat([table.detach() for table in net.tables])
    w = {name: value.requires_grad_() for name, value in w.items()}
    begins, sums = torch.tensor([0, *TABLES[:-1]]).cumsum(0), torch.zeros(sum(TABLES))
    for ids, y in chosen():
        x = F.one_hot(ids + begins, sum(TABLES)).sum(1).to(y.dtype) @ w["table"]
        for at in range(len(net.layers)):
            x = x @ w[f"{at}.weight"].T + w[f"{at}.bias"]
        grads = torch.autograd.grad((x - y).square().mean(), [*w.values()])
        with torch.no_grad():
            for (name, value), grad in zip(w.items(), grads, strict=True):
                if name != "table":
                    value.sub_(0.05 * grad)
                    continue
                square = grad * grad
                sums += square.sum(1) if fault == "mean" else square.mean(1)  # target: mean
                value.sub_(0.05 * grad / (sums.sqrt() + 1e-8)[:, None])


# Attention that leaves padding to the loss, and a head that is tied


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDE)
        self.qkv, self.out = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)

    def forward(self, ids: Tensor, seen: Tensor) -> Tensor:
        x = self.words(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=seen))
        return F.linear(x, self.words.weight)  # golden: tied


def texts() -> list[tuple[Tensor, Tensor]]:
    made = torch.Generator().manual_seed(44)
    lengths = [torch.randint(3, LENGTH + 1, (ROWS, 1), generator=made) for _ in range(STEPS)]
    there = [torch.arange(LENGTH) < length for length in lengths]
    return [
        (torch.randint(1, VOCABULARY, (ROWS, LENGTH), generator=made) * each, each)
        for each in there
    ]


def padded(_: str) -> None:
    net = drawn(Text)[0]
    sgd = torch.optim.SGD(net.parameters(), lr=0.05)
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()  # golden: shifted
    for ids, there in texts():
        logits = net(ids, causal & there[:, None])
        labels = ids.masked_fill(~there, -100)[:, 1:]
        scores = logits[:, :-1].flatten(0, 1)
        loss = F.cross_entropy(scores, labels.flatten(), ignore_index=-100)  # golden: counted
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()


def left_to_the_loss(fault: str) -> None:
    net = drawn(Text)[0]
    w = {name: value.detach().clone().requires_grad_() for name, value in net.named_parameters()}
    future = torch.full((LENGTH, LENGTH), float("-inf")).triu(2 if fault == "shifted" else 1)
    for ids, there in texts():
        x = w["words.weight"][ids]
        q, k, v = (x @ w["qkv.weight"].T + w["qkv.bias"]).chunk(3, -1)
        mixed = torch.softmax(q @ k.mT / WIDE**0.5 + future, -1) @ v  # target: shifted
        x = x + mixed @ w["out.weight"].T + w["out.bias"]
        head = w["words.weight"].detach() if fault == "tied" else w["words.weight"]
        shares = (x @ head.T)[:, :-1].log_softmax(-1)  # target: tied
        lost = -shares.gather(-1, ids[:, 1:, None]).squeeze(-1)
        count = there.sum() if fault == "counted" else there[:, 1:].sum()
        loss = (lost * there[:, 1:]).sum() / count  # target: counted
        grads = torch.autograd.grad(loss, [*w.values()])
        with torch.no_grad():
            for value, grad in zip(w.values(), grads, strict=True):
                value.sub_(0.05 * grad)


# A penalty of some weights in the loss, beside a weight decay of the optimizer


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDE, 2 * WIDE), nn.Linear(2 * WIDE, WIDE)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.second(F.silu(self.first(x)))  # golden: silu
        return made


def decayed(_: str) -> None:
    net = drawn(Two)[0]
    groups = [
        {"params": [net.first.weight], "weight_decay": 0.02},
        {"params": [net.first.bias, *net.second.parameters()]},
    ]
    adam = torch.optim.Adam(groups, lr=RATE)
    for x, y in batches():
        loss = F.mse_loss(net(x), y)
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()


def penalised(fault: str) -> None:
    net = drawn(Two)[0]
    w = {name: value.detach().clone().requires_grad_() for name, value in net.named_parameters()}
    means = {name: torch.zeros_like(value) for name, value in w.items()}
    squares = {name: torch.zeros_like(value) for name, value in w.items()}
    for step, (x, y) in enumerate(batches(), 1):
        wide = x @ w["first.weight"].T + w["first.bias"]
        wide = wide * torch.sigmoid(1.702 * wide if fault == "silu" else wide)  # target: silu
        loss = (wide @ w["second.weight"].T + w["second.bias"] - y).square().mean()
        penalty = 0.01 * w["first.weight"].square().sum()
        grads = torch.autograd.grad(loss + penalty, [*w.values()])
        with torch.no_grad():
            for (name, value), grad in zip(w.items(), grads, strict=True):
                means[name] = 0.9 * means[name] + 0.1 * grad
                squares[name] = 0.999 * squares[name] + 0.001 * grad * grad
                off = (squares[name] / (1 - 0.999**step)).sqrt() + 1e-8
                value.sub_(RATE * (means[name] / (1 - 0.9**step)) / off)


# A head that reads the table of words


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(VOCABULARY, WIDE), nn.LayerNorm(WIDE)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.words(ids).tanh())
        return F.linear(x, self.words.weight)  # golden: held


def read_twice(_: str) -> None:
    net = drawn(Words)[0]
    sgd = torch.optim.SGD(net.parameters(), lr=0.05)
    for ids, _there in texts():
        loss = F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()


def read_once(fault: str) -> None:
    net = drawn(Words)[0]
    w = {name: value.detach().clone().requires_grad_() for name, value in net.named_parameters()}
    for ids, _there in texts():
        table = w["words.weight"]
        x = F.layer_norm(table[ids[:, :-1]].tanh(), [WIDE], w["norm.weight"], w["norm.bias"])
        head = table.detach() if fault == "held" else table
        shares = (x @ head.T).log_softmax(-1)  # target: held
        loss = -shares.gather(-1, ids[:, 1:, None]).mean()
        grads = torch.autograd.grad(loss, [*w.values()])
        with torch.no_grad():
            for value, grad in zip(w.values(), grads, strict=True):
                value.sub_(0.05 * grad)


PAIRS = {
    "gelu": (joined, norms),
    "early": (own, tower),
    "places": (own, tower),
    "rate": (own, tower),
    "warm": (averaged_anew, averaged),
    "mean": (one_table, tables),
    "tied": (left_to_the_loss, padded),
    "counted": (left_to_the_loss, padded),
    "shifted": (left_to_the_loss, padded),
    "silu": (penalised, decayed),
    "held": (read_once, read_twice),
}


@pytest.mark.parametrize("fault", PAIRS)
def test_what_is_written_again_is_nothing(tmp_path: Path, fault: str) -> None:
    comparison = compared(PAIRS[fault], tmp_path)
    document = comparison.document
    assert (document.complete, document.findings) == (True, ())


@pytest.mark.parametrize("fault", PAIRS)
def test_what_is_written_wrongly_is_told(tmp_path: Path, fault: str) -> None:
    comparison = compared(PAIRS[fault], tmp_path, fault)
    finding = comparison.document.findings[0]
    for side in ("target", "golden"):
        assert marked_line(__file__, f"# {side}: {fault}") in told_lines(finding, side)
    assert not any("in another order" in why for why in finding.reasons)  # nor of rounded weights


@pytest.mark.parametrize("fault", ["early", "warm"])
def test_an_average_is_told_where_it_is_updated(tmp_path: Path, fault: str) -> None:
    comparison = compared(PAIRS[fault], tmp_path, fault)
    finding = comparison.document.findings[0]
    assert finding.source is not None
    assert finding.source.endswith(f":{marked_line(__file__, f'# target: {fault}')}")


def test_a_weight_that_is_read_detached_is_said_to_be(tmp_path: Path) -> None:
    finding = compared(PAIRS["held"], tmp_path, "held").document.findings[0]
    assert finding.source is not None
    assert finding.source.endswith(f":{marked_line(__file__, '# target: held')}")
    assert any("it is detached" in why for why in finding.reasons)
