# SPDX-License-Identifier: Apache-2.0
"""Small torch programs that between them use what a recorder can get wrong; each returns its
losses.
"""

from __future__ import annotations

import threading

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def train(
    model: nn.Module, data: torch.Tensor, *, steps: int = 3, optimizer: type = torch.optim.SGD
) -> list[str]:
    opt = optimizer(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        loss = model(data).float().square().mean()
        loss.backward()
        opt.step()
        losses.append(loss.item().hex())
    return losses


def linear() -> list[str]:
    torch.manual_seed(0)
    return train(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), torch.randn(5, 8))


def convolution() -> list[str]:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.GroupNorm(2, 8),
        nn.AdaptiveAvgPool2d(1),
    )
    return train(net, torch.randn(2, 3, 8, 8), optimizer=torch.optim.AdamW)


def lstm() -> list[str]:
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.rnn, self.out = (
                nn.Embedding(11, 6),
                nn.LSTM(6, 7, num_layers=2),
                nn.Linear(7, 3),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h, _ = self.rnn(
                self.embed(x.long().abs() % 11), (torch.zeros(2, 4, 7), torch.zeros(2, 4, 7))
            )
            return self.out(h)

    return train(Net(), torch.randint(0, 11, (5, 4)))


def attention() -> list[str]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
    return train(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 6, 16))


def eval_fast_path() -> list[str]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    mask = torch.zeros(2, 6, dtype=torch.bool)
    mask[1, 4:] = True
    with torch.no_grad():
        out = model(torch.randn(2, 6, 16), src_key_padding_mask=mask)
    return [out.double().sum().item().hex(), out.double().square().sum().item().hex()]


def checkpointing() -> list[str]:
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (
                nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Tanh()),
                nn.Linear(8, 8),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(checkpoint(self.a, x, use_reentrant=False))

    return train(Net(), torch.randn(4, 8))


def autocast() -> list[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return train(model, torch.randn(5, 8))


def scaler() -> list[str]:
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    scale = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    losses = []
    for _ in range(4):
        opt.zero_grad()
        loss = (model(torch.randn(5, 8)) * 100).square().mean()
        scale.scale(loss).backward()
        scale.step(opt)
        scale.update()
        losses.append(f"{loss.item().hex()} {scale.get_scale()}")
    return losses


class Cube(torch.autograd.Function):
    """x ** 3, with a backward of its own."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


def custom_function() -> list[str]:
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Cube.apply(self.fc(x))

    return train(Net(), torch.randn(5, 8))


def in_place() -> list[str]:
    x = torch.linspace(0.5, 2.0, 8).reshape(2, 4)
    y = x.clone()
    y[0].log_().add_(1.0).mul_(x[1])
    y.t()[1] = 3.0
    buffer = torch.empty(2, 4)
    torch.add(x, y, out=buffer)
    torch._foreach_add_([x, y], [y, buffer])
    return [value.double().sum().item().hex() for value in (x, y, buffer)]


def views() -> list[str]:
    x = torch.arange(24.0).reshape(2, 3, 4)
    q, k = x.split(2, dim=2)
    e = x[:, :1].expand(2, 5, 4)
    s = (
        (q.transpose(1, 2) @ k).sum()
        + (e * 2).mean()
        + x.permute(2, 0, 1).contiguous().view(-1)[3:9].sum()
    )
    w = x.unfold(2, 2, 1).sum() + torch.as_strided(x, (3, 3), (1, 1)).sum()
    return [s.item().hex(), w.item().hex()]


def inference() -> list[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    with torch.inference_mode():
        out = model(torch.randn(3, 8))
        out.mul_(2.0)
    return [out.sum().item().hex()]


def kinds() -> list[str]:
    """Types and layouts: complex with lazy conjugation, bool, int, fp8, sparse, nested, meta,
    quantized-free.
    """
    torch.manual_seed(0)
    z = torch.randn(4, dtype=torch.complex64)
    total = (z.conj() * z).real.sum() + z.conj().imag.sum()
    sparse = torch.eye(3).to_sparse()
    dense = torch.sparse.mm(sparse, torch.randn(3, 2))
    nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])
    meta = torch.empty(3, 3, device="meta") + 1
    small = torch.randn(8).to(torch.float8_e4m3fn).float()
    flags = torch.randint(0, 5, (7,)) > 2
    return [
        t.double().sum().item().hex()
        for t in (total, dense, nested.to_padded_tensor(0.0), small, flags)
    ] + [str(tuple(meta.shape))]


def several_threads() -> list[str]:
    torch.manual_seed(0)
    found: dict[int, str] = {}

    def work(number: int) -> None:
        x = torch.full((4,), float(number))
        found[number] = (x.exp().sum()).item().hex()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
        thread.join()
    return [found[n] for n in range(3)]


def weight_gradients() -> list[str]:
    """A linear layer without bias on three-dimensional input: the case in which tools lose the
    weight's gradient.
    """
    torch.manual_seed(0)
    return train(nn.Linear(8, 4, bias=False), torch.randn(2, 3, 8))


def closure() -> list[str]:
    torch.manual_seed(0)
    model, data = nn.Linear(4, 1), torch.randn(6, 4)
    opt = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def evaluate() -> torch.Tensor:
        opt.zero_grad()
        loss = (model(data) - data.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return loss

    return [opt.step(evaluate).item().hex() for _ in range(2)]


def adversarial() -> list[str]:
    """Two models, two optimizers, one step after the other."""
    torch.manual_seed(0)
    made, judged = nn.Linear(3, 4), nn.Linear(4, 1)
    opt_made, opt_judged = (
        torch.optim.Adam(made.parameters(), lr=0.01),
        torch.optim.Adam(judged.parameters(), lr=0.01),
    )
    losses = []
    for _ in range(3):
        opt_judged.zero_grad()
        loss = (
            F.softplus(judged(made(torch.randn(5, 3)).detach())).mean()
            + F.softplus(-judged(torch.randn(5, 4))).mean()
        )
        loss.backward()
        opt_judged.step()
        opt_made.zero_grad()
        other = F.softplus(-judged(made(torch.randn(5, 3)))).mean()
        other.backward()
        opt_made.step()
        losses += [loss.item().hex(), other.item().hex()]
    return losses


PROGRAMS = (
    linear,
    convolution,
    lstm,
    attention,
    eval_fast_path,
    checkpointing,
    autocast,
    scaler,
    custom_function,
    in_place,
    views,
    inference,
    kinds,
    several_threads,
    weight_gradients,
    closure,
    adversarial,
)
