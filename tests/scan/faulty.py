# SPDX-License-Identifier: Apache-2.0
"""Small real programs with a known origin: what each runs, and what scan must say first."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import torch
import torch.nn.functional as F
from torch import nn

NAN, INF = math.nan, math.inf


class Faulty(msgspec.Struct, frozen=True, kw_only=True):
    """op, phase and status of the first finding; others are the operators that may be found besides
    it.

    guarded: the program removes it on purpose, so that it is told on request only.
    """

    program: Callable[[], object]
    op: str
    phase: str = "forward"
    status: str | None = "0x20"
    reached: str | None = None
    hidden_by: str | None = None
    forward: str | None = None
    arrived: bool = False
    says: str = ""
    confidence: str = "proven"
    others: tuple[str, ...] = ()
    guarded: bool = False


PROGRAMS: dict[str, Faulty] = {}


def faulty(**expected: object) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Register a program under its name."""

    def register(program: Callable[[], object]) -> Callable[[], object]:
        PROGRAMS[program.__name__] = Faulty(program=program, **expected)  # type: ignore[arg-type]
        return program

    return register


def parameter(*values: float, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=dtype))


def learn(loss: torch.Tensor, *parameters: nn.Parameter) -> None:
    loss.backward()
    torch.optim.SGD(parameters, lr=0.1).step()


# -- the table of docs/soundness.md ----------------------------------------------------------------


@faulty(op="log", says="logarithm of zero", reached="loss", others=("div",))
def log_of_zero_then_nll_loss() -> None:
    w = parameter(0.0, 1.0)
    logp = torch.log(w).unsqueeze(0)
    learn(F.nll_loss(logp, torch.tensor([0])), w)


@faulty(op="log", says="logarithm of zero", reached="loss", others=("div",))
def log_of_zero_times_zero() -> None:
    p = parameter(0.0, 1.0)
    learn((p * torch.log(p)).sum(), p)


@faulty(op="log", says="logarithm of zero")
def log_of_zero_times_zero_without_backward() -> None:
    p = torch.tensor([0.0, 1.0])
    (p * torch.log(p)).sum()


@faulty(op="div", says="division by zero")
def division_by_norm_of_zero() -> None:
    h = torch.zeros(4)
    h / h.norm()


@faulty(op="_softmax", says="masked")
def softmax_over_masked_row() -> None:
    scores = torch.randn(3, 4).masked_fill(
        torch.tensor([[True] * 4, [False] * 4, [False] * 4]), -INF
    )
    torch.softmax(scores, -1)


@faulty(op="_to_copy", status="0x100", says="100000")
def cast_to_half() -> None:
    (torch.tensor([1.0, 1e5]).half()) + 1


@faulty(op="mm", status="0x400", says="accumulation overflow")
def half_product() -> None:
    q = torch.full((4, 64), 40.0, dtype=torch.float16)
    q @ q.T


@faulty(op="bmm", status="0x400", says="accumulation overflow", others=("_softmax",))
def half_attention() -> None:
    q = torch.full((2, 4, 64), 40.0, dtype=torch.float16)
    torch.softmax(q @ q.transpose(-1, -2), -1) @ q


@faulty(op="div", phase="backward", forward="sqrt", reached="gradient")
def sqrt_of_zero_backward() -> None:
    x = parameter(0.0, 1.0)
    y = torch.sqrt(x) * torch.tensor([1.0, 1.0])
    (y * y.detach().clamp(min=0)).sum()
    learn((torch.sqrt(x) * 1.0).sum(), x)


@faulty(op="div", phase="backward", forward="sqrt", reached="gradient")
def sqrt_of_zero_backward_times_zero() -> None:
    x = parameter(0.0, 1.0)
    inner = x * 0.0
    learn(torch.sqrt(inner).sum(), x)


@faulty(op="div", phase="backward", forward="sqrt", hidden_by="where", guarded=True)
def sqrt_of_zero_backward_hidden_by_where_negative() -> None:
    x = parameter(0.0, 1.0)
    safe = torch.where(x > 0, x, torch.zeros_like(x))
    learn(-torch.sqrt(safe).sum(), x)


@faulty(op="div", phase="backward", forward="sqrt", hidden_by="where", guarded=True)
def sqrt_of_zero_backward_hidden_by_where() -> None:
    x = parameter(0.0, 1.0)
    safe = torch.where(x > 0, x, torch.zeros_like(x))
    learn(torch.sqrt(safe).sum(), x)


@faulty(op="mul", status="0x10", says="integer overflow")
def int32_product() -> None:
    index = torch.arange(1_000_000_000, 1_000_000_004, dtype=torch.int32)
    index * 3


@faulty(op="exp", hidden_by="reciprocal", says="exponential of 100")
def exp_hidden() -> None:
    x = torch.exp(torch.tensor([100.0]))
    1 / x


@faulty(op="add", arrived=True, status=None, says="arrived unsound", reached="loss")
def nan_in_data() -> None:
    w = parameter(1.0, 2.0)
    learn(F.mse_loss(OUTSIDE + w, torch.ones(2)), w)


@faulty(op="t", arrived=True, status=None, says="parameter", reached="loss")
def nan_in_checkpoint() -> None:
    learn(DAMAGED(torch.ones(2, 3)).sum(), *DAMAGED.parameters())


@faulty(op="addcmul", phase="optimizer", says="result leaves", hidden_by="addcdiv")
def optimizer_state_overflow() -> None:
    w = parameter(1.0, 2.0)
    w.grad = torch.full((2,), 1e25)
    torch.optim.Adam([w], foreach=False).step()


@faulty(op="log", says="negative", reached="loss")
def log_in_place() -> None:
    x = torch.tensor([-1.0, 2.0])
    w = parameter(1.0, 1.0)
    x.log_()
    learn((x * w).sum(), w)


@faulty(
    op="nan_to_num",
    arrived=True,
    status=None,
    says="arrived unsound",
    hidden_by="nan_to_num",
    guarded=True,
)
def nan_in_data_replaced() -> None:
    w = parameter(1.0, 2.0)
    learn(F.mse_loss(torch.nan_to_num(OUTSIDE) + w, torch.ones(2)), w)


@faulty(
    op="lift_fresh",
    arrived=True,
    status=None,
    says="arrived unsound",
    hidden_by="where",
    guarded=True,
)
def nan_in_a_literal_replaced() -> None:
    x = torch.tensor([1.0, NAN, 3.0])
    torch.where(torch.isnan(x), torch.zeros_like(x), x).sum()


# -- more of them ----------------------------------------------------------------------------------


@faulty(op="mul", says="infinity times zero")
def zero_times_infinity() -> None:
    mask = torch.ones(3, 3).triu(1)
    mask * -INF + torch.randn(3, 3)


@faulty(op="div", says="division by zero")
def mean_of_an_empty_selection() -> None:
    x = torch.randn(4)
    chosen = x > 100
    (x * chosen).sum() / chosen.sum()


@faulty(op="mean", says="mean of nothing")
def mean_of_nothing() -> None:
    x = torch.randn(4)
    x[x > 100].mean()


@faulty(op="nll_loss_forward", says="ignored", reached="loss")
def every_target_ignored() -> None:
    w = parameter(1.0, 2.0)
    learn(F.cross_entropy(w.unsqueeze(0), torch.tensor([-100])), w)


@faulty(op="nll_loss_forward", reached="loss", says="mask")
def target_of_a_masked_class() -> None:
    w = parameter(1.0, 2.0, 3.0)
    logits = w.masked_fill(torch.tensor([True, False, False]), -INF).unsqueeze(0)
    learn(F.cross_entropy(logits, torch.tensor([0])), w)


@faulty(op="mul", says="infinity", reached="loss", others=("mul",))
def entropy_of_masked_logits() -> None:
    w = parameter(1.0, 2.0, 3.0)
    logp = torch.log_softmax(w.masked_fill(torch.tensor([True, False, False]), -INF), -1)
    learn(-(logp.exp() * logp).sum(), w)


@faulty(op="pow", says="result leaves", reached="loss")
def pow_overflow() -> None:
    w = parameter(1e20, 1.0)
    learn((w**2).sum(), w)


@faulty(op="sum", says="result leaves")
def half_sum() -> None:
    torch.full((100,), 1000.0, dtype=torch.float16).sum()


@faulty(op="convolution", status="0x400")
def half_convolution() -> None:
    F.conv2d(
        torch.full((1, 8, 5, 5), 100.0, dtype=torch.float16),
        torch.full((2, 8, 3, 3), 100.0, dtype=torch.float16),
    )


@faulty(op="rsqrt", says="root of zero")
def rsqrt_of_zero() -> None:
    torch.rsqrt(torch.tensor([0.0, 1.0]))


@faulty(op="sqrt", says="negative")
def sqrt_of_negative_variance() -> None:
    x = torch.tensor([1.0, -1e-7])
    torch.sqrt(x) + 1


@faulty(op="log", says="negative")
def log_of_negative() -> None:
    torch.log(torch.tensor([1.0, -0.5])).mean()


@faulty(op="linalg_vector_norm", says="result leaves")
def half_norm() -> None:
    torch.full((100,), 60000.0, dtype=torch.float16).norm()


@faulty(op="exp", says="exponential", reached="loss")
def softmax_by_hand() -> None:
    w = parameter(100.0, 1.0)
    e = torch.exp(w)
    learn((e / e.sum()).sum(), w)


@faulty(op="add", reached="loss", others=("_log_softmax",))
def half_sum_of_logits() -> None:
    w = parameter(60000.0, 1.0, dtype=torch.float16)
    logits = (w + w).unsqueeze(0)
    learn(F.cross_entropy(logits.float(), torch.tensor([0])), w)


@faulty(op="div", phase="backward", forward="log", reached="gradient", says="division by zero")
def log_of_zero_backward_only() -> None:
    """where hides the -Inf in the forward pass; in the backward pass 0 / 0 is NaN."""
    p = parameter(0.0, 1.0)
    logp = torch.where(p > 0, torch.log(p), torch.zeros_like(p))
    learn(logp.sum(), p)


@faulty(op="div", phase="backward", forward="sqrt", reached="gradient")
def norm_power_backward() -> None:
    x = parameter(0.0, 0.0)
    learn(x.pow(2).sum().sqrt(), x)


@faulty(op="acos", says="domain")
def acos_beyond_one() -> None:
    torch.acos(torch.tensor([1.0000001, 0.5]))


@faulty(op="sub", says="infinity minus infinity")
def difference_of_masks() -> None:
    distance = torch.zeros(3, 3).fill_diagonal_(INF)
    distance - distance.T


@faulty(op="neg", status="0x8", says="most negative")
def negated_int_min() -> None:
    -torch.tensor([-(2**31), 5], dtype=torch.int32)


@faulty(op="_to_copy", status="0x80", says="negative float")
def negative_to_unsigned() -> None:
    torch.tensor([-3.0, 5.0]).to(torch.uint8)


@faulty(op="add", status="0x10")
def int8_sum() -> None:
    torch.tensor([100, 3], dtype=torch.int8) + 100


@faulty(op="native_batch_norm", says="variance")
def batch_norm_without_epsilon() -> None:
    F.batch_norm(torch.ones(4, 2), torch.zeros(2), torch.zeros(2), eps=0.0)


@faulty(op="mm", reached="loss", status="0x400", others=("mm", "mul"))
def float_overflow_in_training() -> None:
    w = nn.Parameter(torch.full((2, 2), 1e3))
    for _ in range(6):
        loss = (w @ w @ w).sum()
        loss.backward()
        with torch.no_grad():
            w.sub_(w.grad, alpha=1e3)
        w.grad = None


@faulty(op="mul", reached="loss", says="result leaves")
def partial_write_then_read() -> None:
    w = parameter(1.0, 1.0)
    buffer = torch.ones(2, 2)
    buffer[0].mul_(1e38)
    buffer[0].mul_(1e38)
    learn((buffer * w).sum(), w)


@faulty(op="reciprocal", says="division by zero", reached="loss")
def adaptive_weight() -> None:
    w = parameter(1.0, 1.0)
    weights = torch.tensor([1.0, 0.0]).reciprocal() * torch.tensor([1.0, 0.0])
    learn((w * weights).sum(), w)


# What no recorded call produced.
OUTSIDE = torch.tensor([1.0, NAN])
DAMAGED = nn.Linear(3, 2)
with torch.no_grad():
    DAMAGED.weight[0, 0] = NAN
