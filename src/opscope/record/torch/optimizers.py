# SPDX-License-Identifier: Apache-2.0
"""Which optimizers of the program a training step waits for."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer


@dataclass(frozen=True)
class Gradient:
    """A gradient as it was at one moment; holds no memory."""

    tensor: Any  # a reference that keeps nothing alive and that swap_tensors does not mind
    version: int

    @classmethod
    def of(cls, parameter: torch.Tensor) -> Gradient | None:
        gradient = parameter.grad
        if gradient is None:
            return None
        return cls(torch._C._WeakTensorRef(gradient), gradient._version)  # type: ignore[attr-defined]

    def remains(self, gradient: torch.Tensor | None) -> bool:
        return (
            gradient is not None and not self.tensor.expired() and gradient._version == self.version
        )


class LiveOptimizers:
    """Tells the optimizers that exist and take part in the recording, by id.

    One that a notebook or an earlier training left behind would be waited for in vain: what had
    trained before the recording counts once a gradient of it has changed, what was made before it
    once a model that holds a parameter of it is called, which used tells.
    """

    def __init__(self, used: Callable[[torch.Tensor], bool]) -> None:
        self._used = used
        living = [(id(each), gradients(each), bool(each.state)) for each in optimizers()]
        self._before = {known: before for known, before, _ in living}
        self._fresh = {known for known, before, trained in living if not (trained or any(before))}

    def __call__(self) -> set[Hashable]:
        return {id(optimizer) for optimizer in optimizers() if self._takes_part(optimizer)}

    def _takes_part(self, optimizer: Optimizer) -> bool:
        before, now = self._before.get(id(optimizer)), list(parameters(optimizer))
        if before is None or len(before) != len(now):
            return True
        changed = not all(
            parameter.grad is None if seen is None else seen.remains(parameter.grad)
            for seen, parameter in zip(before, now, strict=True)
        )
        return changed or (id(optimizer) in self._fresh and any(map(self._used, now)))


def optimizers() -> Iterator[Optimizer]:
    """Optimizers of the program whose step is watched; wrappers that torch does not hook never
    report one.
    """
    kinds = {kind for kind in subclasses(Optimizer) if getattr(kind.step, "hooked", False)}
    yield from (each for each in gc.get_objects() if type(each) in kinds) if kinds else ()


def parameters(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """All that the optimizer updates."""
    for group in optimizer.param_groups:
        yield from group["params"]


def gradients(optimizer: Optimizer) -> list[Gradient | None]:
    """What the gradients of an optimizer's parameters are now."""
    return [Gradient.of(parameter) for parameter in parameters(optimizer)]


def subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    """A class and all that are derived from it."""
    yield kind
    for derived in type.__subclasses__(kind):
        yield from subclasses(derived)
