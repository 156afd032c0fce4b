# SPDX-License-Identifier: Apache-2.0
"""A catalogue of kernels made wrong at run time, and the small trainings in which they are.

Each entry replaces one operator's kernel through torch.library while it is installed. What the
right kernel gives comes from
the kernel itself: the replacement steps aside for the moment of that call.

    with CATALOGUE["group-norm-tile"].installed():
        training()

As a program:  python -m tests.wrong_kernels.kernels NAME [STEPS]
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Genuine = Callable[..., Any]
CATALOGUE: dict[str, Wrong] = {}


class Override:
    """One operator replaced on one dispatch key."""

    def __init__(self, op: str, key: str, kernel: Callable[..., Any]) -> None:
        self.name = op.removeprefix("aten::").removesuffix(".default")
        self.func = getattr(
            getattr(torch.ops.aten, self.name.partition(".")[0]),
            self.name.partition(".")[2] or "default",
        )
        self.key, self.kernel = key, kernel
        self.library: Any = None

    def put(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.library = torch.library.Library("aten", "IMPL")
            self.library.impl(
                self.name,
                lambda *args, **kwargs: self.kernel(self.genuine, *args, **kwargs),
                self.key,
            )

    def take_away(self) -> None:
        self.library._destroy()

    def genuine(self, *args: Any, **kwargs: Any) -> Any:
        self.take_away()
        try:
            return self.func(*args, **kwargs)
        finally:
            self.put()


@dataclass(frozen=True)
class Wrong:
    """A wrong kernel: the operator to be named, the training it is found in, and how it fails.

    kind: value (wrong numbers), flaky, nan, raise, abort, hang.
    """

    name: str
    op: str
    program: Callable[..., list[float]]
    kernel: Callable[..., Any]
    kind: str = "value"
    key: str = "CPU"

    @contextmanager
    def installed(self) -> Iterator[None]:
        override = Override(self.op, self.key, self.kernel)
        override.put()
        try:
            yield
        finally:
            override.take_away()


def wrong(
    name: str, op: str, program: Callable[..., list[float]], **facts: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(kernel: Callable[..., Any]) -> Callable[..., Any]:
        CATALOGUE[name] = Wrong(name, op, program, kernel, **facts)
        return kernel

    return register


# -- trainings -------------------------------------------------------------------------------------


def fit(
    model: nn.Module,
    batch: Callable[[], tuple[torch.Tensor, torch.Tensor]],
    *,
    steps: int,
    optimizer: Any,
) -> list[float]:
    losses = []
    for _ in range(steps):
        data, target = batch()
        loss = F.cross_entropy(model(data).float().flatten(0, -2), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class Decoder(nn.Module):
    """A little of everything that language models have."""

    def __init__(self, width: int = 32, words: int = 17) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(words, width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.gate, self.down = (
            nn.Linear(width, 48),
            nn.Linear(width, 48),
            nn.Linear(48, width),
        )
        self.head = nn.Linear(width, words)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        )
        x = x + self.down(F.silu(self.gate(x)) * F.gelu(self.up(x)))
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.head(x)


def decoder(steps: int = 2, dtype: torch.dtype = torch.float32) -> list[float]:
    torch.manual_seed(0)
    model = Decoder().to(dtype)
    words = torch.randint(0, 17, (3, 9))
    return fit(
        model,
        lambda: (words[:, :-1], words[:, 1:]),
        steps=steps,
        optimizer=torch.optim.AdamW(model.parameters(), 1e-2, foreach=False),
    )


def decoder_bfloat16(steps: int = 2) -> list[float]:
    return decoder(steps, torch.bfloat16)


class Scores(nn.Module):
    """Attention written out, with what else matrices meet."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(17, 64), nn.Linear(64, 17, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        weights = torch.bmm(x, x.transpose(1, 2)).mul(0.125).softmax(-1)
        x = torch.bmm(weights, x)
        return self.head(torch.tanh(x).cumsum(1) * torch.sigmoid(x))


def scores(steps: int = 2) -> list[float]:
    torch.manual_seed(0)
    model, words = Scores(), torch.randint(0, 17, (3, 41))
    return fit(
        model,
        lambda: (words[:, :-1], words[:, 1:]),
        steps=steps,
        optimizer=torch.optim.SGD(model.parameters(), 0.1, foreach=False),
    )


class Vision(nn.Module):
    """What image models have."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.batch, self.group, self.drop = nn.BatchNorm2d(8), nn.GroupNorm(2, 8), nn.Dropout(0.2)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(torch.relu(self.batch(self.one(x))), 2)
        x = F.adaptive_avg_pool2d(self.group(self.two(x)), 2)
        return self.head(self.drop(x.flatten(2).transpose(1, 2)).mean(1, keepdim=True))


def vision(steps: int = 2) -> list[float]:
    torch.manual_seed(0)
    model, x = Vision(), torch.randn(4, 3, 10, 10)
    return fit(
        model,
        lambda: (x, torch.arange(4)),
        steps=steps,
        optimizer=torch.optim.SGD(model.parameters(), 0.1, foreach=False),
    )


# -- off in a tile, for one shape, for one type ----------------------------------------------------


@wrong("group-norm-tile", "aten::native_group_norm.default", vision)
def group_norm_tile(genuine: Genuine, *args: Any) -> Any:
    y, mean, rstd = genuine(*args)
    y[0, 0, 0, :2] *= 1.01
    return y, mean, rstd


@wrong("mm-tile", "aten::mm.default", decoder)
def mm_tile(genuine: Genuine, a: torch.Tensor, b: torch.Tensor) -> Any:
    y = genuine(a, b)
    y[:4, :4] *= 1.001
    return y


@wrong("addmm-drops-bias-of-one-shape", "aten::addmm.default", decoder)
def addmm_shape(
    genuine: Genuine, bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **kwargs: Any
) -> Any:
    return genuine(torch.zeros_like(bias) if b.shape[1] == 48 else bias, a, b, **kwargs)


@wrong("mm-wrong-in-bfloat16", "aten::mm.default", decoder_bfloat16)
def mm_bfloat16(genuine: Genuine, a: torch.Tensor, b: torch.Tensor) -> Any:
    return genuine(a[:, :-1], b[:-1]) if a.dtype is torch.bfloat16 else genuine(a, b)


@wrong("cumsum-loses-the-carry", "aten::cumsum.default", scores)
def cumsum_carry(genuine: Genuine, x: torch.Tensor, dim: int, **kwargs: Any) -> Any:
    return torch.cat([genuine(part, dim, **kwargs) for part in x.split(32, dim)], dim)


@wrong("convolution-edge", "aten::convolution.default", vision, key="CompositeExplicitAutograd")
def convolution_edge(genuine: Genuine, *args: Any) -> Any:
    y = genuine(*args)
    y[..., -1] = y[..., -2]
    return y


# -- backward formulas -----------------------------------------------------------------------------


@wrong("group-norm-backward", "aten::native_group_norm_backward.default", vision)
def group_norm_backward(genuine: Genuine, *args: Any) -> Any:
    grad, weight, bias = genuine(*args)
    return grad + 0.01 * grad.abs().mean(), weight, bias


@wrong("layer-norm-backward", "aten::native_layer_norm_backward.default", decoder)
def layer_norm_backward(genuine: Genuine, *args: Any) -> Any:
    grad, weight, bias = genuine(*args)
    return grad, weight * 1.02, bias


@wrong(
    "attention-backward",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward.default",
    decoder,
)
def attention_backward(genuine: Genuine, *args: Any, **kwargs: Any) -> Any:
    query, key, value = genuine(*args, **kwargs)
    return query, key * 0.9, value


@wrong("gelu-backward-of-tanh", "aten::gelu_backward.default", decoder)
def gelu_backward(genuine: Genuine, grad: torch.Tensor, x: torch.Tensor, **kwargs: Any) -> Any:
    return genuine(grad, x, approximate="tanh")


@wrong("softmax-backward-without-sum", "aten::_softmax_backward_data.default", scores)
def softmax_backward(
    genuine: Genuine, grad: torch.Tensor, y: torch.Tensor, dim: int, dtype: torch.dtype
) -> Any:
    return grad * y


@wrong(
    "convolution-backward-weight",
    "aten::convolution_backward.default",
    vision,
    key="CompositeExplicitAutograd",
)
def convolution_backward(genuine: Genuine, *args: Any) -> Any:
    data, weight, bias = genuine(*args)
    return data, weight.flip(-1), bias


@wrong("embedding-backward-last-wins", "aten::embedding_dense_backward.default", decoder)
def embedding_backward(
    genuine: Genuine,
    grad: torch.Tensor,
    indices: torch.Tensor,
    words: int,
    padding: int,
    scale: bool,
) -> Any:
    found = grad.new_zeros(words, grad.shape[-1])
    for place, row in zip(indices.flatten().tolist(), grad.flatten(0, -2), strict=True):
        found[place] = row
    return found


@wrong("nll-loss-backward-scale", "aten::nll_loss_backward.default", scores)
def nll_loss_backward(genuine: Genuine, *args: Any) -> Any:
    return genuine(*args) * 0.5


@wrong("max-pool-backward-shifted", "aten::max_pool2d_with_indices_backward.default", vision)
def max_pool_backward(genuine: Genuine, *args: Any) -> Any:
    return genuine(*args).roll(1, -1)


@wrong("tanh-backward-rare-nan", "aten::tanh_backward.default", scores, kind="nan")
def tanh_backward(genuine: Genuine, grad: torch.Tensor, y: torch.Tensor) -> Any:
    return genuine(grad, y).masked_fill(y > y.max() * 0.999, float("nan"))


# -- precision -------------------------------------------------------------------------------------


@wrong("bmm-accumulates-in-bfloat16", "aten::bmm.default", scores)
def bmm_narrow(genuine: Genuine, a: torch.Tensor, b: torch.Tensor) -> Any:
    total = a.new_zeros(a.shape[0], a.shape[1], b.shape[2], dtype=torch.bfloat16)
    for k in range(a.shape[2]):
        total += (a[:, :, k, None] * b[:, None, k]).to(torch.bfloat16)
    return total.to(a.dtype)


@wrong("mm-accumulates-in-bfloat16", "aten::mm.default", decoder_bfloat16)
def mm_narrow(genuine: Genuine, a: torch.Tensor, b: torch.Tensor) -> Any:
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for k in range(a.shape[1]):
        total += a[:, k, None] * b[None, k]
    return total


@wrong("rsqrt-of-few-digits", "aten::rsqrt.default", decoder)
def rsqrt_few_digits(genuine: Genuine, x: torch.Tensor) -> Any:
    return genuine(x).to(torch.bfloat16).to(x.dtype)


@wrong("gelu-by-tanh", "aten::gelu.default", decoder)
def gelu_by_tanh(genuine: Genuine, x: torch.Tensor, **kwargs: Any) -> Any:
    return genuine(x, approximate="tanh")


@wrong("layer-norm-large-eps", "aten::native_layer_norm.default", decoder)
def layer_norm_eps(
    genuine: Genuine, x: torch.Tensor, shape: Any, weight: Any, bias: Any, eps: float
) -> Any:
    return genuine(x, shape, weight, bias, eps * 1000)


@wrong(
    "cast-truncates", "aten::_to_copy.default", decoder_bfloat16, key="CompositeExplicitAutograd"
)
def cast_truncates(genuine: Genuine, x: torch.Tensor, **kwargs: Any) -> Any:
    if (
        isinstance(x, torch.Tensor)
        and kwargs.get("dtype") is torch.bfloat16
        and x.dtype is torch.float32
    ):
        x = (x.view(torch.int32) & -65536).view(torch.float32)
    return genuine(x, **kwargs)


@wrong("log-softmax-few-digits", "aten::_log_softmax.default", decoder)
def log_softmax(genuine: Genuine, x: torch.Tensor, dim: int, half: bool) -> Any:
    return genuine(x.to(torch.float16).to(x.dtype), dim, half)


# -- memory ----------------------------------------------------------------------------------------


@wrong("silu-stale", "aten::silu.default", decoder)
def silu_stale(genuine: Genuine, x: torch.Tensor, held: dict[Any, torch.Tensor] = {}) -> Any:
    y = genuine(x)
    held.setdefault((tuple(x.shape), x.dtype), y.clone())
    return held[tuple(x.shape), x.dtype].clone()


@wrong("sum-past-the-end", "aten::sum.dim_IntList", decoder)
def sum_past_the_end(
    genuine: Genuine, x: torch.Tensor, dim: Any, keepdim: bool = False, **kwargs: Any
) -> Any:
    return genuine(x, dim, keepdim, **kwargs) + x.flatten()[-1]


@wrong("batch-norm-running-mean", "aten::native_batch_norm.default", vision)
def batch_norm_running(genuine: Genuine, *args: Any) -> Any:
    found = genuine(*args)
    if args[3] is not None:
        args[3].mul_(0.5)
    return found


@wrong("sgd-ignores-alpha", "aten::add_.Tensor", scores)
def add_ignores_alpha(genuine: Genuine, x: torch.Tensor, other: Any, *, alpha: Any = 1) -> Any:
    return genuine(x, other, alpha=alpha * 0.99)


@wrong("adam-division", "aten::addcdiv_.default", decoder)
def addcdiv(
    genuine: Genuine, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, value: Any = 1
) -> Any:
    return genuine(x, a, b + 1e-3, value=value)


@wrong("embedding-last-row", "aten::embedding.default", decoder, key="CompositeExplicitAutograd")
def embedding_row(genuine: Genuine, weight: torch.Tensor, indices: torch.Tensor, *rest: Any) -> Any:
    return genuine(weight, indices.clamp(max=weight.shape[0] - 2), *rest)


# -- not the same twice ----------------------------------------------------------------------------


@wrong("mean-flaky", "aten::mean.dim", decoder, kind="flaky")
def mean_flaky(genuine: Genuine, *args: Any, counted: list[int] = [], **kwargs: Any) -> Any:
    counted.append(1)
    return genuine(*args, **kwargs) * (1 + 1e-4 * (len(counted) % 2))


@wrong("sigmoid-flaky", "aten::sigmoid.default", scores, kind="flaky")
def sigmoid_flaky(genuine: Genuine, x: torch.Tensor) -> Any:
    return genuine(x) + torch.rand(x.shape) * 1e-4


@wrong("dropout-biased", "aten::bernoulli_.float", vision)
def bernoulli(genuine: Genuine, x: torch.Tensor, p: float = 0.5, **kwargs: Any) -> Any:
    return genuine(x, p * 0.5, **kwargs)


# -- no result at all ------------------------------------------------------------------------------


@wrong("gelu-raises", "aten::gelu_backward.default", decoder, kind="raise")
def gelu_raises(genuine: Genuine, *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("AICore error 507015: the kernel ended (emulated)")


@wrong("group-norm-aborts", "aten::native_group_norm_backward.default", vision, kind="abort")
def group_norm_aborts(genuine: Genuine, *args: Any) -> Any:
    os.abort()


@wrong("softmax-hangs", "aten::_softmax.default", scores, kind="hang")
def softmax_hangs(genuine: Genuine, *args: Any) -> Any:
    while True:
        time.sleep(1)


def main(name: str, steps: int = 2) -> None:
    """One training with one wrong kernel, `healthy:PROGRAM` for one without; prints the losses."""
    if name.startswith("healthy:"):
        program = {each.program.__name__: each.program for each in CATALOGUE.values()}[
            name.partition(":")[2]
        ]
        print(*program(steps))
        return
    entry = CATALOGUE[name]
    with entry.installed():
        print(*entry.program(steps))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
