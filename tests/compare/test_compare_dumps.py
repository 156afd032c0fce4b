# SPDX-License-Identifier: Apache-2.0
"""Two trainings that are written differently, in dumps of the APIs that they call: statistics of
what each read and wrote, which tensor is which unsaid, views and some operators left out, as
msprobe does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from opscope.compare.api import compare
from opscope.run.finding import Document

VIEWS = {"view", "t", "transpose", "reshape", "permute", "expand", "unsqueeze", "flatten", "detach"}
HIDDEN = {
    *("backward", "requires_grad_", "item", "cat", "neg", "size", "clone", "unbind"),
    *("__get__", "__set__", "__len__", "_set_grad_enabled"),
}
WIDTH, STEPS = 6, 3
Weights = dict[str, torch.Tensor]


def statistics(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        x = value.detach().double()
        single = x.numel() == 1  # of which msprobe writes the number itself as its norm
        return {
            "type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape),
            "Max": x.max().item(), "Min": x.min().item(), "Mean": x.mean().item(),
            "Norm": x.item() if single else x.norm().item(), "requires_grad": value.requires_grad,
        }  # fmt: skip
    if isinstance(value, (tuple, list)):
        return [statistics(item) for item in value]
    return {"type": type(value).__name__, "value": value} if value is not None else None


class Dumping(TorchFunctionMode):
    """What dump.json holds of the calls made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, Any] = {}
        self._times: Counter[str] = Counter()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        word, given = getattr(func, "__name__", "__get__"), kwargs or {}
        if word in VIEWS | HIDDEN:
            return func(*args, **given)
        place = next(
            (name for name, home in (("Functional", F), ("Torch", torch)) if hasattr(home, word)),
            "Tensor",
        )
        name = f"{'Tensor' if word.startswith('__') or word.endswith('_') else place}.{word}"
        self._times[name] += 1
        name = f"{name}.{self._times[name] - 1}"
        read = {
            "input_args": statistics(args),
            "input_kwargs": {k: statistics(v) for k, v in given.items()},
        }
        out = func(*args, **given)
        self.data[f"{name}.forward"] = {**read, "output": [statistics(out)]}
        if isinstance(out, torch.Tensor) and out.grad_fn is not None:
            out.grad_fn.register_hook(self._gradients(f"{name}.backward"))
        return out

    def _gradients(self, name: str) -> Callable[[Any, Any], None]:
        def hook(made: Any, read: Any) -> None:
            with torch._C.DisableTorchFunction():
                self.data[name] = {"input": statistics(read), "output": statistics(made)}

        return hook


def weights() -> Weights:
    drawn = torch.Generator().manual_seed(3)
    sizes = {"q": (WIDTH, WIDTH), "k": (WIDTH, WIDTH), "v": (WIDTH, WIDTH), "out": (3, WIDTH)}
    return {
        name: (0.5 * torch.randn(size, generator=drawn)).requires_grad_()
        for name, size in sizes.items()
    }


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    drawn = torch.Generator().manual_seed(4)
    return [
        (torch.randn(2, 5, WIDTH, generator=drawn), torch.randint(3, (2,), generator=drawn))
        for _ in range(STEPS)
    ]


def written_out(w: Weights, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Three projections, attention and the loss written out, of which the sign is turned last."""
    q, k, v = (x @ w[name].t() for name in ("q", "k", "v"))
    scores = (q @ k.transpose(1, 2)) / WIDTH**0.5
    h = F.gelu(torch.softmax(scores, -1) @ v).mean(1)
    logp = torch.log_softmax(h @ w["out"].t(), -1)
    return -(logp * F.one_hot(y, 3)).sum() / len(y)


def fused(w: Weights, x: torch.Tensor, y: torch.Tensor, fault: str = "") -> torch.Tensor:
    """One projection, cut by views, torch's own attention and loss."""
    packed = torch.cat([w["q"], w["k"], w["v"]])
    q, k, v = F.linear(x, packed).view(2, 5, 3, WIDTH).permute(2, 0, 1, 3).unbind(0)
    scale = 0.5 if fault == "scale" else None
    h = F.scaled_dot_product_attention(q, k, v, scale=scale)
    h = F.gelu(h, approximate="tanh" if fault == "gelu" else "none").mean(1)
    return F.cross_entropy(F.linear(h, w["out"]), y, label_smoothing=0.1 * (fault == "smoothing"))


def trained(
    loss_of: Callable[[Weights, torch.Tensor, torch.Tensor], torch.Tensor],
    folder: Path,
    *,
    rate: float = 0.1,
) -> Path:
    """The dump of a training, all in one step."""
    w, dumping = weights(), Dumping()
    data = batches()
    with dumping:
        for x, y in data:
            loss_of(w, x, y).backward()
            with torch.no_grad():
                for each in w.values():
                    assert each.grad is not None
                    each.sub_(each.grad * rate)
                    each.grad = None
    place = folder / "step0" / "rank0"
    place.mkdir(parents=True)
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (place / "dump.json").write_text(json.dumps({**head, "data": dumping.data}))
    return folder


def compared(
    folder: Path,
    loss_of: Callable[[Weights, torch.Tensor, torch.Tensor], torch.Tensor],
    rate: float,
) -> Document:
    golden = trained(written_out, folder / "golden")
    return compare(trained(loss_of, folder / "target", rate=rate), golden).document


def test_two_that_compute_the_same_are_accused_of_nothing(tmp_path: Path) -> None:
    document = compared(tmp_path, fused, 0.1)
    assert (document.findings, document.complete) == ((), True)
    assert "written otherwise" in document.summary["warnings"][0]


@pytest.mark.parametrize(
    ("fault", "ops"),
    [
        ("scale", {"Functional.scaled_dot_product_attention", "Functional.linear"}),
        ("gelu", {"Functional.gelu"}),
        ("smoothing", {"Functional.cross_entropy"}),
    ],
)
def test_what_one_computes_otherwise_is_told(fault: str, ops: set[str], tmp_path: Path) -> None:
    (finding,) = compared(tmp_path, lambda w, x, y: fused(w, x, y, fault), 0.1).findings
    assert finding.confidence == "suspected"
    assert finding.op in ops


def test_another_rate_is_told_at_the_update(tmp_path: Path) -> None:
    (finding,) = compared(tmp_path, fused, 0.12).findings
    assert finding.op in {"Tensor.sub_", "Torch.mul"}
    assert "argument 1 is 0.12, golden has 0.1" in finding.reasons
