# SPDX-License-Identifier: Apache-2.0
"""What operators of the graph engine compute, in NumPy: one function for each type, by the
definition of its prototype.

This folder needs nothing but NumPy and is copied into each case, so that the case stands alone. A
reference takes the inputs in the order of the prototype (floating types widened to float64,
optional ones that are absent None) and the attributes by name, and gives the outputs as a tuple.
`compute` looks one up; KeyError where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import (
    activations,
    convolutions,
    elementwise,
    gathers,
    losses,
    matrices,
    norms,
    optimizers,
    pooling,
    reductions,
    shapes,
)
from .table import TABLE, Attributes, Inapplicable

__all__ = ["TABLE", "Inapplicable", "compute", "find"]
_ROOMS = (
    activations,
    convolutions,
    elementwise,
    gathers,
    losses,
    matrices,
    norms,
    optimizers,
    pooling,
    reductions,
    shapes,
)


def find(op_type: str) -> str | None:
    """The name under which a type's reference is known; types that differ in how axes are given
    (…D) share one.
    """
    plain = op_type.removesuffix("AiCore")  # what aclnn calls the kernel of a type
    for name in (plain, plain.removesuffix("D"), f"{plain}D"):
        if name in TABLE:
            return name
    return None


def compute(op_type: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    """Outputs of an operator. KeyError for a type without reference, Inapplicable where an input or
    attribute is missing.
    """
    import numpy as np

    name = find(op_type)
    if name is None:
        raise KeyError(op_type)
    wide = [
        None if one is None else one.astype(np.float64) if one.dtype.kind == "f" else one
        for one in inputs
    ]
    with np.errstate(all="ignore"):
        try:
            computed = TABLE[name](wide, Attributes(attributes))
        except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise Inapplicable(f"{op_type}: {type(error).__name__}: {error}") from error
    return computed if isinstance(computed, tuple) else (computed,)
