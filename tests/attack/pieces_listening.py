# SPDX-License-Identifier: Apache-2.0
"""Pieces of random programs: what hears of functions (modes, subclasses, profilers), above code
that calls operators from C++.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import library as registry
from torch import nn
from torch.overrides import TorchFunctionMode

SOURCE = (
    "def act(x, y):\n    # type: (Tensor, Tensor) -> Tensor\n    z = torch.cat([x, "
    "y.sin()])\n    for i in range(3):\n"
    "        z = z * 2 + i\n    return torch.rsub(z, 1.5).pow(2).add_(x.sum()).clamp(min=0)\n"
)


class Hears(TorchFunctionMode):
    """Notes every function that it hears of."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        # torch's own `_backward_hooks = None` on what a script writes in place; below any mode its
        # tensors have Python objects.
        if name != "__set__":
            self.names.append(name)
        return func(*args, **(kwargs or {}))


class Named(torch.Tensor):
    """A subclass that notes every function that it hears of."""

    names: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.names.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


def scripts_under_function_modes(r: random.Random) -> Any:
    unit = torch.jit.CompilationUnit(SOURCE)
    model = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1)))
    traced = torch.jit.trace(lambda x: (x * 2 + 1).exp().sum(), (torch.ones(3),))
    x = torch.randn(3, requires_grad=True)
    with Hears() as outer, Hears() as inner:
        y = unit.act(x, torch.ones(r.randint(1, 3)))
        y.sum().backward()
        other = model(torch.ones(2, 3)), traced(x)
        torch.autograd.backward([other[0].sum()])
        grads = torch.autograd.grad([other[1]], [x])
    return y, x.grad, other, grads, outer.names, inner.names


def subclasses_in_scripts(r: random.Random) -> Any:
    unit = torch.jit.CompilationUnit(SOURCE)
    Named.names = []
    x = torch.randn(r.randint(1, 3)).as_subclass(Named)
    y = unit.act(x, torch.ones(2))
    return y, type(y).__name__, Named.names


def subclasses_in_backward(r: random.Random) -> Any:
    Named.names = []
    x = torch.randn(r.randint(1, 3)).as_subclass(Named).requires_grad_()
    y = ((x * x).exp() * 3).as_subclass(torch.Tensor).sum()
    torch.autograd.backward([y])
    return y, x.grad, Named.names


def kernels_in_python(r: random.Random) -> Any:
    """What a kernel in Python calls is heard where a script calls its operator."""
    name = f"attack_listening_{r.randrange(10**9)}"
    library = registry.Library(name, "DEF")  # noqa: TOR901 - as programs do, for as long as the piece lasts
    library.define("twice(Tensor x, Tensor[] more, float by=2.0) -> Tensor")
    library.impl(
        "twice",
        lambda x, more, by=2.0: torch.add(torch.mul(x, by), more[0]) if more else x * by,
        "CPU",
    )

    @registry.custom_op(f"{name}::thrice", mutates_args=())
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x) + x + x

    unit = torch.jit.CompilationUnit(
        "def act(x):\n    # type: (Tensor) -> Tensor\n    return "
        f"torch.ops.{name}.thrice(torch.ops.{name}.twice(x, [x], 3.0)) * 2\n"
    )
    x = torch.ones(r.randint(1, 3))
    with Hears() as mode:
        found = unit.act(x), getattr(torch.ops, name).twice(x, []), thrice(x)
    Named.names = []
    kind = unit.act(x.as_subclass(Named))
    return (
        found,
        [each.replace(name, "") for each in mode.names],
        kind,
        [each.replace(name, "") for each in Named.names],
    )


def replaced_kernels(r: random.Random) -> Any:
    """An operator of torch's with a kernel in Python, called by a script."""
    library = registry.Library("aten", "IMPL")  # noqa: TOR901
    library.impl("sinc", lambda x: torch.cos(x) * 2, "CPU")
    unit = torch.jit.CompilationUnit(
        "def act(x):\n    # type: (Tensor) -> Tensor\n    return torch.sinc(x)\n"
    )
    with Hears() as mode:
        found = unit.act(torch.ones(r.randint(1, 3)))
    library._destroy()
    return found, mode.names


def numbers_in_scripts(r: random.Random) -> Any:
    source = (
        "def act(x, n):\n    # type: (Tensor, float) -> Tensor\n    y = x.add(n).mul_(2)\n   "
        " return torch.where(x > 0, y, n).div(3).masked_fill(x > 1, 0.5) // 2\n"
    )
    with Hears() as mode:
        y = torch.jit.CompilationUnit(source).act(torch.randn(3), r.random())
    return y, mode.names


def modes_that_change_devices(r: random.Random) -> Any:
    with torch.device("meta"):
        found = torch.jit.CompilationUnit(
            "def act(x):\n    # type: (Tensor) -> Tensor\n    return x + torch.ones([2])\n"
        ).act(torch.ones(2, device="cpu"))
    return found, r.random()


def default_devices_are_set(r: random.Random) -> Any:
    torch.set_default_device("cpu")
    try:
        model = torch.jit.script(nn.Linear(2, r.randint(1, 3)))
        return model(torch.ones(1, 2)), torch.get_default_device()
    finally:
        torch.set_default_device(None)
