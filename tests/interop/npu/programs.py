# SPDX-License-Identifier: Apache-2.0
"""Programs on `npu:0`, healthy ones and faults, that test_npu.py runs bare and recorded.

    python programs.py NAME [STEPS]

prints a loss a step; on the CPU where DEVICE=cpu. A line that a verdict has to name ends with
`# HERE`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

DEVICE = os.environ.get("DEVICE", "npu")
if DEVICE == "npu":
    import torch_npu

Step = Callable[[int], torch.Tensor]


def on_device(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).to(DEVICE)


def trained(optimizer: torch.optim.Optimizer, loss_of: Callable[[], torch.Tensor]) -> Step:
    def step(_: int) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss

    return step


def mlp() -> Step:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x, y = on_device(32, 8), on_device(32, 4)
    return trained(optimizer, lambda: functional.mse_loss(net(x), y))


def conv() -> Step:
    net = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.1), nn.Linear(8 * 64, 10)),
    ).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    x, y = on_device(4, 3, 16, 16), torch.randint(0, 10, (4,)).to(DEVICE)
    return trained(optimizer, lambda: functional.cross_entropy(net(x), y))


class Block(nn.Module):
    """Attention with a mask of -inf, then a GELU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out, self.wide = nn.Linear(width, width), nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.triu(torch.full((16, 16), float("-inf")), 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + self.mask.to(q.dtype)
        x = x + self.out(torch.softmax(scores, -1) @ v)
        return x + self.narrow(functional.gelu(self.wide(self.norm(x))))


def transformer(dtype: torch.dtype | None = None) -> Step:
    net = nn.ModuleList([nn.Embedding(50, 32), Block(32), nn.Linear(32, 50)]).to(DEVICE)
    words, block, head = net
    optimizer = torch.optim.AdamW(net.parameters(), fused=dtype is None)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**12, enabled=dtype == torch.float16)
    ids = torch.randint(0, 50, (4, 17)).to(DEVICE)

    def step(_: int) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype=dtype or torch.float16, enabled=dtype is not None):
            logits = head(block(words(ids[:, :-1]))).float()
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step


def fused_attention() -> Step:
    q, k, v = (on_device(2, 4, 16, 8).half().requires_grad_() for _ in range(3))
    scale = nn.Parameter(torch.ones(8).to(DEVICE).half())

    def step(_: int) -> torch.Tensor:
        given = {"scale": 8**-0.5, "input_layout": "BNSD"}
        attended = torch_npu.npu_fusion_attention(q, k, v, 4, **given)[0]
        normed = torch_npu.npu_rms_norm(attended, scale)[0]
        loss = normed.float().square().mean()
        loss.backward()
        return loss

    return step


def half_overflow() -> Step:
    w = (on_device(64, 64) / 8).half()
    x = on_device(16, 64).half()

    def step(number: int) -> torch.Tensor:
        q = (x * 4**number) @ w
        scores = torch.matmul(q, q.transpose(-1, -2))  # HERE
        return torch.softmax(scores / 8, -1).float().mean()

    return step


def large_overflow() -> Step:
    """A product of tensors that are too large for the host to have a copy of."""
    net = nn.Linear(512, 512, bias=False).to(DEVICE).half()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-9)
    x = on_device(512, 512).half()

    def step(number: int) -> torch.Tensor:
        q = net(x * 8**number)
        scores = torch.matmul(q, q.transpose(-1, -2))  # HERE
        loss = torch.softmax(scores / 64, -1).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def large_division() -> Step:
    """The derivative of a square root at 0, of a tensor that the host has no copy of."""
    net = nn.Linear(512, 512).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters())
    x, y = on_device(512, 512), on_device(512, 512)

    def step(number: int) -> torch.Tensor:
        optimizer.zero_grad()
        away = net(x) - (y if number < 2 else net(x).detach())
        loss = away.square().sqrt().mean()  # HERE
        loss.backward()
        optimizer.step()
        return loss

    return step


def deep() -> Step:
    """After a division by zero 80 MiB more are read in the same step."""
    w, x = on_device(512, 512) / 16, on_device(512, 512)
    zeros = torch.zeros(512, 512).to(DEVICE)

    def step(number: int) -> torch.Tensor:
        y = x
        for layer in range(40):
            y = torch.tanh(y @ w + layer)
            if (number, layer) == (1, 9):
                y = y / zeros  # HERE
        return y.mean()

    return step


def little_memory() -> Step:
    """The same overflow where a ring of the usual size does not fit beside the program."""
    step = large_overflow()
    torch.npu.set_per_process_memory_fraction(64 / (16 << 10))  # of a device of 16 GiB
    return step


def half_exponential() -> Step:
    x = torch.linspace(1, 4, 16).half().to(DEVICE)

    def step(number: int) -> torch.Tensor:
        weights = torch.exp(x * (number + 1))  # HERE
        return (weights / weights.sum()).float().mean()

    return step


def scaled_too_much() -> Step:
    """Gradients overflow until GradScaler has found its scale."""
    weight = nn.Parameter(on_device(64, 64))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**20)
    x = on_device(16, 64)

    def step(_: int) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = (x @ weight).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step


def nan_backward() -> Step:
    net = nn.Linear(8, 8).to(DEVICE)
    x = on_device(4, 8)
    x[0] = 0.0

    def step(_: int) -> torch.Tensor:
        away = net(x) - net(x).detach()
        norm = away.square().sum(-1).sqrt()  # HERE
        loss = norm.mean()
        loss.backward()
        return loss

    return step


def division() -> Step:
    x = on_device(8)

    def step(number: int) -> torch.Tensor:
        count = torch.full((8,), float(3 - number)).to(DEVICE)
        return (x / count).sum()  # HERE

    return step


def trained_away() -> Step:
    """A weight that a step of its optimizer makes 0 ends in a division by it."""
    weight = nn.Parameter(torch.tensor([1.0, 2.0]).to(DEVICE))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    x = on_device(2)

    def step(number: int) -> torch.Tensor:
        optimizer.zero_grad()
        loss = weight.sum() if number < 1 else (x / weight).sum()  # HERE
        loss.backward()
        optimizer.step()
        return loss

    return step


def products() -> Step:
    """Two operators that a broken kernel shows in: a softmax and a product."""
    a, b = on_device(32, 16), on_device(16, 8)

    def step(number: int) -> torch.Tensor:
        weights = torch.softmax(a + number, -1)  # SOFTMAX
        return (weights @ b).square().mean()

    return step


PROGRAMS: dict[str, Callable[[], Step]] = {
    "mlp": mlp,
    "conv": conv,
    "transformer": transformer,
    "transformer_float16": lambda: transformer(torch.float16),
    "transformer_bfloat16": lambda: transformer(torch.bfloat16),
    "fused_attention": fused_attention,
    "half_overflow": half_overflow,
    "large_overflow": large_overflow,
    "large_division": large_division,
    "deep": deep,
    "little_memory": little_memory,
    "half_exponential": half_exponential,
    "scaled_too_much": scaled_too_much,
    "nan_backward": nan_backward,
    "division": division,
    "trained_away": trained_away,
    "products": products,
}


def main() -> None:
    torch.manual_seed(0)
    step = PROGRAMS[sys.argv[1]]()
    for number in range(int(sys.argv[2]) if len(sys.argv) > 2 else 4):
        print(f"{step(number).item():.9g}", flush=True)


if __name__ == "__main__":
    main()
