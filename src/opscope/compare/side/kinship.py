# SPDX-License-Identifier: Apache-2.0
"""Operators of different frameworks that compute the same thing, under one word each: for
comparisons between frameworks only.

judge.operators.family tells spellings of one operator; kin() goes further and calls aten::addmm,
MatMul and Dense one thing. What
the words hold: PyTorch's native_functions.yaml, MindSpore's ops.operations, the operator lists of
CANN (GE types) and TensorFlow.
"""

from __future__ import annotations

import re
from functools import lru_cache

from opscope.operators.catalogue import family, traits_of

_CAMEL = re.compile(r"[A-Z][A-Za-z0-9]*")
_TORCH = re.compile(r"\w+::|(torch|Functional|Tensor|Torch|NPU|Aten)\.")


@lru_cache(maxsize=8192)
def kin(op: str) -> str:
    """One word for what an operator of any framework computes; its family where it has no kin."""
    return traits_of(op).kin or family(op)


@lru_cache(maxsize=8192)
def world(op: str) -> str:
    """Whose spelling an operator has: "torch", "graph" (MindSpore, CANN, TensorFlow), or "" for
    none of them.
    """
    if _TORCH.match(op):
        return "torch"
    return "graph" if _CAMEL.fullmatch(op) else ""
