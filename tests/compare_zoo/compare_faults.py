# SPDX-License-Identifier: Apache-2.0
"""Small trainings, healthy or with one fault each: what to change, and which operator is to be
named.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, LENGTH, BATCH, WORDS, STEPS = 16, 2, 6, 4, 24, 2


class BadGelu(torch.autograd.Function):
    """GELU with a wrong derivative."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return functional.gelu(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        return gradient * torch.sigmoid(1.702 * x) * context.factor


class Turned(nn.Linear):
    """A linear layer that may read its weight the wrong way round."""

    turned = False

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight.t() if self.turned else self.weight, self.bias)


class Attention(nn.Module):
    """Causal attention written out."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = Turned(WIDTH, WIDTH, bias=not options.get("out_without_bias"))
        self.out.turned = bool(options.get("transposed"))
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.view(BATCH, LENGTH, HEADS, -1).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        scale = self.options.get("scale", 1 / math.sqrt(WIDTH / HEADS))
        if self.options.get("low_precision"):
            scores = (q.bfloat16() @ k.bfloat16().transpose(-1, -2)).float() * scale
        else:
            scores = q @ k.transpose(-1, -2) * scale
        mask = torch.triu(
            torch.ones(LENGTH, LENGTH, dtype=torch.bool), diagonal=self.options.get("diagonal", 1)
        )
        scores = scores.masked_fill(mask, self.options.get("filled", float("-inf")))
        weights = scores.softmax(self.options.get("softmax_dim", -1))
        return self.out((weights @ v).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        affine = not options.get("plain_norm")
        self.norm1 = nn.LayerNorm(WIDTH, eps=options.get("eps", 1e-5))
        self.attention = Attention(options)
        self.norm2 = nn.LayerNorm(WIDTH, elementwise_affine=affine)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        options = self.options
        attended = self.attention(self.norm1(x))
        x = (
            attended
            if options.get("no_residual")
            else x - attended
            if options.get("minus")
            else x + attended
        )
        hidden = self.up(self.norm2(x))
        if "factor" in options:
            function = type("Gelu", (BadGelu,), {"factor": options["factor"]})
            hidden = self.call(function, hidden)
        elif options.get("relu"):
            hidden = functional.relu(hidden)
        else:
            hidden = functional.gelu(hidden, approximate=options.get("approximate", "none"))
        if options.get("extra"):
            hidden = hidden * options["extra"]
        if options.get("branches"):
            hidden = self.branches(hidden, options["branches"])
        if "dropout" in options:
            hidden = functional.dropout(hidden, options["dropout"], training=True)
        return x + self.down(hidden)

    @staticmethod
    def call(function: Any, hidden: Tensor) -> Tensor:
        class Bound(BadGelu):
            @staticmethod
            def forward(context: Any, x: Tensor) -> Tensor:
                context.factor = function.factor
                return BadGelu.forward(context, x)

        return Bound.apply(hidden)

    @staticmethod
    def branches(hidden: Tensor, order: str) -> Tensor:
        makers: dict[str, Callable[[], Tensor]] = {
            "a": lambda: torch.tanh(hidden) * 0.5,
            "b": lambda: torch.tanh(hidden * 2.0),
        }
        made = {name: makers[name]() for name in order}
        return hidden + (made["a"] - made["b"])


class Model(nn.Module):
    """A small transformer."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(
            [
                Block(
                    options if place == 1 else {k: v for k, v in options.items() if k in EVERYWHERE}
                )
                for place in range(2)
            ]
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


EVERYWHERE = frozenset({"dropout"})


class Picture(nn.Module):
    """A small convolution net."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(
            4, momentum=options.get("momentum", 0.1), eps=options.get("bn_eps", 1e-5)
        )
        self.conv2 = nn.Conv2d(
            4, 4, 3, padding=options.get("padding", 1), stride=options.get("stride", 1)
        )
        self.head = nn.Linear(4, 5)
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.relu(self.bn(self.conv1(x)))
        hidden = self.conv2(hidden)
        high, mean = hidden.amax((2, 3)), hidden.mean((2, 3))
        return self.head(mean - high if self.options.get("swap") else high - mean)


def train(options: dict[str, Any]) -> None:
    """Two steps of a training, made the same way whatever the options."""
    torch.manual_seed(0)
    picture = options.get("model") == "picture"
    model: nn.Module = Picture(options) if picture else Model(options)
    if picture:
        inputs, goal = (
            torch.randn(BATCH, 1, 8, 8, generator=torch.Generator().manual_seed(1)),
            torch.arange(BATCH) % 5,
        )
    else:
        ids = torch.randint(
            0,
            WORDS,
            (BATCH, LENGTH + 1),
            generator=torch.Generator().manual_seed(options.get("data", 1)),
        )
        inputs, goal = ids[:, :-1], ids[:, 1:].reshape(-1)
    torch.manual_seed(0)
    reference = Picture({}) if picture else Model({})
    with torch.no_grad():
        known = dict(reference.named_parameters())
        for name, parameter in model.named_parameters():
            if name in known and parameter.shape == known[name].shape:
                parameter.copy_(known[name])
        for layer in getattr(model, "layers", ()):
            layer.norm1.weight.normal_(1.0, 0.2, generator=torch.Generator().manual_seed(4))
            if layer.norm2.weight is not None:
                layer.norm2.weight.normal_(1.0, 0.2, generator=torch.Generator().manual_seed(5))
        if "perturbed" in options:
            chosen = dict(model.named_parameters())[options["perturbed"]]
            chosen.add_(
                options.get("by", 1e-3)
                * torch.randn(chosen.shape, generator=torch.Generator().manual_seed(2))
            )
        if options.get("other_init"):
            nn.init.xavier_uniform_(
                model.get_parameter(options["other_init"]),
                generator=torch.Generator().manual_seed(3),
            )
    model.to(options.get("dtype", torch.float32))
    inputs = inputs.to(options["dtype"]) if picture and "dtype" in options else inputs
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=options.get("lr", 1e-2),
        eps=options.get("adam_eps", 1e-8),
        foreach=False,
    )
    torch.manual_seed(options.get("seed", 0))
    import opscope

    torch.backends.mkldnn.enabled = options.get("kernels") != "other"
    threads = torch.get_num_threads()
    torch.set_num_threads(2 if options.get("kernels") == "other" else 1)
    try:
        with opscope.record(options["to"], values=options.get("values", "none")):
            for _ in range(STEPS):
                with torch.autocast("cpu", torch.bfloat16, enabled=options.get("autocast", False)):
                    step(model, optimizer, inputs, goal, options)
    finally:
        torch.backends.mkldnn.enabled = True
        torch.set_num_threads(threads)


def step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: Tensor,
    goal: Tensor,
    options: dict[str, Any],
) -> None:
    """One step of the training."""
    optimizer.zero_grad()
    output = model(inputs)
    loss = functional.cross_entropy(
        output.reshape(len(goal), -1),
        goal,
        reduction=options.get("reduction", "mean"),
        label_smoothing=options.get("smoothing", 0.0),
    )
    loss.backward()
    if "clip" in options:
        nn.utils.clip_grad_norm_(model.parameters(), options["clip"], foreach=False)
    optimizer.step()


@dataclass(frozen=True)
class Fault:
    """A change of the options of target (and of both sides), and what the first finding has to
    say.
    """

    name: str
    change: dict[str, Any]
    ops: tuple[str, ...]
    module: str | None = None
    both: dict[str, Any] = field(default_factory=dict)
    phase: str | None = None
    says: str = ""
    kind: str = "divergence-origin"


FAULTS = (
    Fault(
        "weight perturbed",
        {"perturbed": "layers.1.up.weight"},
        ("addmm",),
        "layers.1.up",
        says="layers.1.up.weight",
    ),
    Fault(
        "bias perturbed by little",
        {"perturbed": "layers.1.down.bias", "by": 1e-6},
        ("addmm",),
        "layers.1.down",
        says="layers.1.down.bias",
    ),
    Fault("wrong eps", {"eps": 1e-3}, ("native_layer_norm",), "layers.1.norm1", says="0.001"),
    Fault(
        "slightly wrong eps", {"eps": 1e-6}, ("native_layer_norm",), "layers.1.norm1", says="1e-06"
    ),
    Fault("dropped bias", {"out_without_bias": True}, ("mm", "addmm"), "layers.1.attention.out"),
    Fault("transposed weight", {"transposed": True}, ("addmm",), "layers.1.attention.out"),
    Fault("mask off by one", {"diagonal": 2}, ("triu",), "layers.1.attention", says="2"),
    Fault("mask with another value", {"filled": -2.0}, ("masked_fill",), "layers.1.attention"),
    Fault("swapped operands", {"swap": True}, ("sub",), both={"model": "picture"}, says="swapped"),
    Fault(
        "bf16 in one product", {"low_precision": True}, ("_to_copy", "bmm"), "layers.1.attention"
    ),
    Fault(
        "wrong derivative",
        {"factor": 1.1},
        ("mul",),
        "layers.1",
        both={"factor": 1.0},
        phase="backward",
    ),
    Fault(
        "dropout seed",
        {"seed": 7},
        ("native_dropout", "bernoulli_", "dropout", "bernoulli"),
        None,
        both={"dropout": 0.2},
        says="random",
    ),
    Fault(
        "dropout rate",
        {"dropout": 0.3},
        ("native_dropout", "bernoulli_", "empty_like", "div_"),
        None,
        both={"dropout": 0.2},
    ),
    Fault("stride", {"stride": 2}, ("convolution",), "conv2", both={"model": "picture"}),
    Fault("padding", {"padding": 0}, ("convolution",), "conv2", both={"model": "picture"}),
    Fault(
        "batch norm eps", {"bn_eps": 1e-2}, ("native_batch_norm",), "bn", both={"model": "picture"}
    ),
    Fault(
        "other initialisation",
        {"other_init": "layers.0.attention.qkv.weight"},
        ("addmm",),
        "layers.0.attention.qkv",
        says="qkv.weight",
    ),
    Fault("scale factor", {"scale": 0.25}, ("mul",), "layers.1.attention", says="0.25"),
    Fault("sign", {"minus": True}, ("sub",), "layers.1"),
    Fault("missing residual", {"no_residual": True}, ("add", "native_layer_norm"), None),
    Fault("extra call", {"extra": 1.5}, ("mul",), "layers.1"),
    Fault("no affine", {"plain_norm": True}, ("native_layer_norm",), "layers.1.norm2"),
    Fault("other activation", {"relu": True}, ("relu",), "layers.1"),
    Fault("approximate gelu", {"approximate": "tanh"}, ("gelu",), "layers.1", says="tanh"),
    Fault("softmax over queries", {"softmax_dim": -2}, ("_softmax",), "layers.1.attention"),
    Fault("loss reduction", {"reduction": "sum"}, ("nll_loss_forward",), ""),
    Fault(
        "label smoothing",
        {"smoothing": 0.1},
        ("sum", "mul", "nll_loss_forward", "div", "add", "neg", "mean"),
        "",
    ),
    Fault("learning rate", {"lr": 2e-2}, ("mul_", "addcdiv_"), None, phase="optimizer"),
    Fault(
        "clipping",
        {"clip": 0.1},
        ("linalg_vector_norm", "mul_", "stack", "mul", "clamp", "cat"),
        None,
    ),
    Fault("other data", {"data": 9}, ("embedding",), "words"),
    # Adam's 1e-8 is 0 in float16: parameters become NaN and infinite where gradients are small
    Fault("an eps below float16", {"dtype": torch.float16}, ("addcdiv_",)),
)
# Changes that are none: nothing may be found.
HEALTHY = (
    Fault("the same again", {}, ()),
    Fault("branches in another order", {"branches": "ba"}, (), both={"branches": "ab"}),
    Fault("values kept", {"values": "full"}, ()),
    Fault("bfloat16", {"dtype": torch.bfloat16}, ()),
    Fault(
        "bfloat16 with values",
        {"dtype": torch.bfloat16, "values": "full"},
        (),
        both={"values": "full"},
    ),
    Fault("float16", {"dtype": torch.float16}, (), both={"adam_eps": 1e-3}),
    Fault("float64", {"dtype": torch.float64}, ()),
    Fault(
        "float64 with values",
        {"dtype": torch.float64, "values": "full"},
        (),
        both={"values": "full"},
    ),
    Fault("picture in bfloat16", {"dtype": torch.bfloat16}, (), both={"model": "picture"}),
    Fault(
        "picture in float64",
        {"dtype": torch.float64, "values": "full"},
        (),
        both={"model": "picture", "values": "full"},
    ),
    Fault("autocast", {"autocast": True}, ()),
    Fault(
        "autocast with values", {"autocast": True, "values": "full"}, (), both={"values": "full"}
    ),
    Fault("other kernels", {"kernels": "other", "values": "full"}, (), both={"values": "full"}),
    Fault("other kernels, statistics only", {"kernels": "other"}, ()),
    Fault("other kernels for the picture", {"kernels": "other"}, (), both={"model": "picture"}),
)
