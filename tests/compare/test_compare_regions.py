# SPDX-License-Identifier: Apache-2.0
"""Two programs written differently are judged by what matters in them, and a fault of one by the
region in which they part.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor, nn

import opscope
from opscope.compare.pair.sketches import Sketch
from opscope.compare.tell.comparison import Comparison

WIDE, HEADS, STEPS = 16, 2, 2


class Original(nn.Module):
    """A layer of attention: fused projection, PyTorch's norm, losses and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDE)
        self.into = nn.Linear(WIDE, 3 * WIDE)
        self.out = nn.Linear(WIDE, 10)

    def forward(self, x: Tensor) -> Tensor:
        read = self.into(self.norm(x)).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k, v = read.unbind()
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return cast("Tensor", self.out(x + seen.transpose(1, 2).flatten(2)))

    def loss(self, made: Tensor, wanted: Tensor) -> Tensor:
        return nn.functional.cross_entropy(made.flatten(0, 1), wanted.flatten())


class Port(nn.Module):
    """The same, written out: three projections, a norm, a softmax and a loss of its own."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.gain, self.shift = nn.Parameter(torch.ones(WIDE)), nn.Parameter(torch.zeros(WIDE))
        self.q, self.k, self.v = (nn.Linear(WIDE, WIDE) for _ in range(3))
        self.head = nn.Linear(WIDE, 10)

    def forward(self, x: Tensor) -> Tensor:
        away = x - x.mean(-1, keepdim=True)
        spread = away.pow(2).mean(-1, keepdim=True)
        normed = away * (spread + (1e-2 if "eps" in self.fault else 1e-5)).rsqrt()
        read = normed * self.gain + self.shift
        q, k, v = (
            part(read).unflatten(-1, (HEADS, -1)).movedim(2, 1) for part in (self.q, self.k, self.v)
        )
        scores = q @ k.mT
        if self.fault != "scale":
            scores = scores * (WIDE // HEADS) ** -0.5
        later = torch.ones(x.shape[1], x.shape[1]).triu(1) > 0
        scores = scores.masked_fill(later, torch.finfo(scores.dtype).min)
        seen = (scores.softmax(-1) @ v).movedim(1, 2).flatten(2)
        if self.fault == "detached":
            seen = seen.detach()
        return cast("Tensor", self.head(seen if self.fault == "residual" else x + seen))

    def loss(self, made: Tensor, wanted: Tensor) -> Tensor:
        told = made.log_softmax(-1).gather(-1, wanted[..., None])
        return -told.sum() if self.fault == "reduction" else -told.mean()

    def load(self, held: dict[str, Tensor]) -> None:
        """Take over what the original starts from."""
        named = {"gain": held["norm.weight"], "shift": held["norm.bias"]}
        for kind in ("weight", "bias"):
            parts = zip("qkv", held[f"into.{kind}"].chunk(3), strict=True)
            named |= {f"{part}.{kind}": own for part, own in parts}
            if self.fault == "mapping":
                named[f"q.{kind}"], named[f"k.{kind}"] = named[f"k.{kind}"], named[f"q.{kind}"]
            named[f"head.{kind}"] = held[f"out.{kind}"]
        if self.fault == "turned":
            named["v.weight"] = named["v.weight"].T.contiguous()
        self.load_state_dict(named)


def trained(to: Path, fault: str | None) -> Path:
    """A recorded training of the original, or of its port with a fault."""
    held = torch.Generator().manual_seed(5)
    start = {
        name: torch.randn(one.shape, generator=held) * 0.3 + 0.5
        for name, one in Original().state_dict().items()
    }
    batches = [
        (torch.randn(2, 6, WIDE, generator=held), torch.randint(0, 10, (2, 6), generator=held))
        for _ in range(STEPS)
    ]
    with opscope.record(to, values="none"):
        model: Original | Port = Original() if fault is None else Port(fault)
        if isinstance(model, Port):
            model.load(start)
        else:
            model.load_state_dict(start)
        rate = 0.11 if fault == "rate" else 0.1
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        for given, wanted in batches:
            optimizer.zero_grad()
            parts = 2 if (fault or "").startswith("parts") else 1
            for some, asked in zip(given.chunk(parts), wanted.chunk(parts), strict=True):
                loss = model.loss(model(some), asked) / (1 if fault == "parts summed" else parts)
                loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return to


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("original") / "run", None)


def beside(original: Path, to: Path, fault: str) -> Comparison:
    return opscope.compare(trained(to / "run", fault), original)


@pytest.mark.parametrize("way", ["", "parts"])
def test_a_healthy_port_is_silent(original: Path, tmp_path: Path, way: str) -> None:
    """Its batch may be cut into parts of which gradients add up, too."""
    document = beside(original, tmp_path, way).document
    assert (document.verdict, document.complete, document.findings) == ("clean", True, ())


@pytest.mark.parametrize(
    ("fault", "target", "golden"),
    [
        ("eps", "add|mul|sub", "native_layer_norm"),
        ("parts eps", "add|mul|sub", "native_layer_norm"),
        ("scale", "bmm", "_scaled_dot_product_flash_attention_for_cpu"),
        ("mapping", "bmm", "_scaled_dot_product_flash_attention_for_cpu"),
        ("residual", "addmm", "add"),
        ("reduction", "gather", "nll_loss_forward"),
        ("rate", "add_", "add_"),
        ("turned", "addmm|mm|linear|t", "addmm"),
    ],
)
def test_a_faulty_port_is_named_with_both_places(
    original: Path, tmp_path: Path, fault: str, target: str, golden: str
) -> None:
    comparison = beside(original, tmp_path, fault)
    first = comparison.findings[0]
    assert (first.op or "").split("::")[1].split(".")[0] in target.split("|"), first
    evidence = first.evidence[0]
    assert golden in evidence["golden_call"], evidence
    assert Path(__file__).name in str(evidence["target_lines"] and evidence["golden_lines"])
    assert (first.rank, first.step, first.confidence) == (0, 0, "suspected")


def test_a_detach_on_one_side_is_told_by_the_gradients(original: Path, tmp_path: Path) -> None:
    first = beside(original, tmp_path, "detached").findings[0]
    assert any("no gradients flow back through it" in reason for reason in first.reasons), first


def test_batches_cut_otherwise_are_judged_by_the_gradients_of_a_step(
    original: Path, tmp_path: Path
) -> None:
    first = beside(original, tmp_path, "parts summed").findings[0]
    assert any("cut into other parts" in reason for reason in first.reasons), first


def test_tensors_are_one_whatever_their_order_and_parts() -> None:
    whole = Sketch(4, 10.0, 30.0, 1.0, 4.0)
    assert whole.error(Sketch(4, 10.0, 30.0, 1.0, 4.0)) == 0
    assert whole.error(Sketch(4, 10.0, 30.0, 1.0, 4.4)) == pytest.approx(0.4 / 4.4)
    assert whole.error(Sketch(5, 10.0, 30.0, 1.0, 4.0)) == float("inf")


class Layer(nn.Module):
    """A layer of which every copy begins alike, biases of zero; fused or in parts."""

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        sizes = [3 * WIDE] if fused else [WIDE] * 3
        self.into = nn.ModuleList(nn.Linear(WIDE, size) for size in sizes)
        self.out = nn.Linear(WIDE, WIDE)
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(WIDE))

    def forward(self, x: Tensor) -> Tensor:
        read = torch.cat([one(x) for one in self.into], -1)
        a, b, c = read.chunk(3, -1)
        if len(self.into) == 1:
            self.seen.mul_(0.9).add_(x.detach().mean((0, 1)), alpha=0.1)
        else:
            self.seen = 0.9 * self.seen + 0.1 * x.detach().mean((0, 1))
        return cast("Tensor", x + self.out(a.tanh() * b.sigmoid() * c))


def trained_copies(to: Path, *, fused: bool) -> Path:
    """A recorded training of two layers that begin alike."""
    held = torch.Generator().manual_seed(7)
    weights = [torch.randn(WIDE, WIDE, generator=held) * 0.4 for _ in range(4)]
    batches = [torch.randn(2, 6, WIDE, generator=held) for _ in range(STEPS)]
    with opscope.record(to, values="none"):
        model = nn.Sequential(*[Layer(fused=fused) for _ in range(2)])
        for layer in model.children():
            parts = [torch.cat(weights[:3])] if fused else weights[:3]
            linears = [one for one in layer.modules() if isinstance(one, nn.Linear)]
            for linear, weight in zip(linears, [*parts, weights[3]], strict=True):
                linear.load_state_dict({"weight": weight, "bias": torch.zeros(len(weight))})
        for given in batches:
            loss = model(given).square().mean()
            parameters = list(model.parameters())
            for one, away in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                one.data.sub_(0.1 * away)
    return to


def test_parameters_that_begin_alike_and_buffers_bound_anew_are_no_difference(
    tmp_path: Path,
) -> None:
    fused = trained_copies(tmp_path / "fused", fused=True)
    parts = trained_copies(tmp_path / "parts", fused=False)
    assert opscope.compare(parts, fused).document.findings == ()
    assert opscope.compare(fused, parts).document.findings == ()
