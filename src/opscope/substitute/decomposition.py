# SPDX-License-Identifier: Apache-2.0
"""Substitute `decomposition`: PyTorch's reference decomposition, other code for the same
mathematics.

An in-place operator, and one that writes to `out`, is decomposed as its functional form; what it
would have written is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from opscope.errors import UnavailableError
from opscope.operators.catalogue import traits_of
from opscope.substitute.arguments import Conditions
from opscope.substitute.mathematics import FORMULAS
from opscope.substitute.perform import perform
from opscope.substitute.schema import find_operator

if TYPE_CHECKING:
    from opscope.substitute.perform import Bound, Performed


class Decomposition:
    """The decomposition in the element types of the call, or in wider ones."""

    name = "decomposition"

    def __init__(self, *, wide: torch.dtype | None = None, device: str | None = None) -> None:
        self.where = Conditions(device=device, wide=wide)

    def lacks(self, op: str) -> str | None:
        try:
            return (
                None
                if decomposition_of(find_operator(op)) is not None
                else f"PyTorch has no decomposition of {op}"
            )
        except UnavailableError as error:
            return str(error)

    def run(self, bound: Bound) -> Performed:
        function = decomposition_of(bound.func) if hasattr(bound.func, "_schema") else None
        if function is None:
            raise UnavailableError(
                f"PyTorch has no decomposition of {bound.call.op}; take float64 or cpu"
            )
        return perform(bound, self.where, function)


def decomposition_of(func: Any) -> Callable[..., Any] | None:
    """A function with the operator's signature, None where there is none."""
    from torch._decomp import decomposition_table

    # torch's entries for these ask for a generator's own stream, or return memory that nobody has
    # written.
    if traits_of(func._schema.name).allocates or torch.Tag.nondeterministic_seeded in func.tags:
        return None
    formula = FORMULAS.get(func._schema.name)
    if formula is not None:
        return formula
    decomposed = decomposition_table.get(func)
    if decomposed is not None:
        return decomposed
    name = func._schema.name.partition("::")[2]
    if name.endswith("_") and not name.endswith("__"):
        functional = decomposition_table.get(_functional(func, name))
        return None if functional is None else _in_place(functional)
    return None


def _functional(func: Any, name: str) -> Any:
    namespace = getattr(torch.ops, func._schema.name.partition("::")[0])
    return getattr(getattr(namespace, name[:-1], None), func._overloadname, None)


def _in_place(functional: Callable[..., Any]) -> Callable[..., Any]:
    def run(first: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return first.copy_(functional(first, *args, **kwargs))

    return run
