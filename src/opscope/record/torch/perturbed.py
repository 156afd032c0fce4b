# SPDX-License-Identifier: Apache-2.0
"""How far the results of a graph may lie apart that correct compilers make of it: the graph
interpreted in double precision, and with every rounding made otherwise.

A compiler may fuse, reassociate and leave out roundings of narrow types. Where that matters, in
sums that cancel and in comparisons of nearly equal numbers, results of the same graph with each
operator's result moved by some units of its rounding differ as well (Monte Carlo arithmetic: D.
Parker, 1997). What memory holds that nobody wrote is other in each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from opscope.judge.families import tolerance_kind, unjudged_kind

MOVED = 4  # units of rounding that a result is moved by at most
KEPT = frozenset({"exact", "unjudged"})  # kinds of operators whose results are not rounded


class Perturbed(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's
    """Moves what every operator rounds, each element by another amount."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch's
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name if hasattr(func, "_schema") else ""
        if unjudged_kind(name) == "memory":
            tree_map(self._fill, result)
        elif (
            name
            and tolerance_kind(name) not in KEPT
            and not _narrows_nothing(name, args, result)
            and (func._schema.is_mutable or not _shares(result, (args, kwargs)))
        ):
            tree_map(self._move, result)
        return result

    def _move(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            narrow = value.dtype.itemsize < 4
            wide = value.float() if narrow else value
            most = MOVED * torch.finfo(value.dtype).eps / 2
            noise = torch.empty(wide.shape, dtype=wide.dtype)
            noise.uniform_(-most, most, generator=self._generator)
            moved = torch.addcmul(wide, wide, noise)
            if narrow or not math.isfinite(float(moved.sum())):  # some may have left the type
                moved = moved.clamp_(*_limits(value.dtype)).where(wide.isfinite(), wide)
            value.copy_(moved)
        return value

    def _fill(self, value: Any) -> Any:
        """What nobody wrote is nobody's number: of what comes of it nothing is asked."""
        if isinstance(value, torch.Tensor) and value.numel():
            if value.is_floating_point() or value.is_complex():
                value.fill_(math.nan)
            else:
                value.copy_(torch.randint(0, 2, value.shape, generator=self._generator))
        return value


class Converting(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's
    """Notices numbers that are converted to an integer type which cannot hold them: what comes of
    that is undefined, and other compilers make other numbers of it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch's
        self.undefined = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if hasattr(func, "_schema") and tolerance_kind(func._schema.name) == "cast":
            self.undefined |= any(not _fits(each, result) for each in args)
        return result


class Widened(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's
    """Has every operator compute floating numbers in double precision."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if not _rounds(func):
            return func(*args, **(kwargs or {}))
        return func(*tree_map(widened, args), **tree_map(widened, dict(kwargs or {})))


def widened(value: Any) -> Any:
    """A floating tensor or type in double precision; anything else as it is."""
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else value
    narrow = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if narrow and value.dtype != torch.float64 else value


def _rounds(func: Any) -> bool:
    """Whether types may be replaced in a call: not where it reads the bits of another type."""
    return func is not torch.ops.aten.view.dtype


def _shares(result: Any, given: Any) -> bool:
    """Whether a result is a view of what was given, and not the operator's own to change."""
    memory = {each.untyped_storage()._cdata for each in _tensors(given)}
    return any(each.untyped_storage()._cdata in memory for each in _tensors(result))


def _tensors(value: Any) -> list[torch.Tensor]:
    return [
        each
        for each in tree_leaves(value)
        if isinstance(each, torch.Tensor) and torch._C._has_storage(each)
    ]


def _narrows_nothing(name: str, args: tuple[Any, ...], result: Any) -> bool:
    """Whether a cast keeps its numbers."""
    if tolerance_kind(name) != "cast" or not args:
        return False
    before, after = args[0], result
    if not (isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor)):
        return False
    if not (before.is_floating_point() and after.is_floating_point()):
        return True
    return torch.finfo(after.dtype).eps <= torch.finfo(before.dtype).eps


def _fits(value: Any, result: Any) -> bool:
    """Whether the type of a conversion's result has numbers for all that is converted."""
    if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
        return True
    dtype = getattr(result, "dtype", torch.bool)
    if dtype == torch.bool or dtype.is_floating_point or dtype.is_complex:
        return True
    whole, known = value.detach().double().trunc(), torch.iinfo(dtype)
    return bool(((whole >= known.min) & (whole <= known.max)).all())


def _limits(dtype: torch.dtype) -> tuple[float, float]:
    known = torch.finfo(dtype)
    return known.min, known.max
