# SPDX-License-Identifier: Apache-2.0
"""Which operators are called again at somebody else's word: those that touch only their tensors, by
their schemas.

script.py writes what stands below the mark into every script, replay asks it too.
"""

from __future__ import annotations

import fnmatch
import re
from typing import Any

import torch

# --- allowing ---
# Namespaces that torch, its libraries and its device back ends fill with computations.
COMPUTING = ("aten", "prims", "mkldnn", "quantized", "npu", "torchvision")
PLAIN = frozenset(
    {"Tensor", "int", "float", "complex", "bool", "number", "Device", "Generator", "str"}
)


def why_refused(op: str, operator: Any, libraries: Any, allowed: Any) -> str:
    """Why this operator is not called again, empty where it is: it may touch more than the tensors
    it is given.

    libraries are those the user named, whose operators may be called with tensors and numbers;
    allowed are the user's patterns.
    """
    if any(
        fnmatch.fnmatchcase(name, pattern)
        for pattern in allowed
        for name in (op, op.rpartition(".")[0])
    ):
        return ""
    way_out = "; --allow " + op + " calls it all the same"
    if op.partition("::")[0] not in COMPUTING and not libraries:
        return op + " is not one of torch's own operators" + way_out
    overloads = (
        [operator]
        if hasattr(operator, "_schema")
        else [getattr(operator, name) for name in operator.overloads()]
    )
    if all(
        touches_only_tensors(each._schema, own=op.partition("::")[0] in COMPUTING)
        for each in overloads
    ):
        return ""
    return op + " may touch more than its tensors" + way_out


def touches_only_tensors(schema: Any, *, own: bool) -> bool:
    """Whether a schema has tensors and plain values only.

    A text is a mode of what is computed where torch's own operator reads a tensor beside it, and a
    file's name where none is read.
    """
    if not torch._C._dispatch_has_kernel(
        schema.name + (schema.overload_name and "." + schema.overload_name)
    ):
        return False  # an operator of TorchScript's interpreter: save, warn, print
    kinds = []
    for each in schema.arguments:
        filled = each.kwarg_only and each.alias_info is not None  # an out= argument
        kinds.append((re.sub(r"Optional\[|List\[|\]", "", str(each.type)), filled))
    reads = any(kind == "Tensor" and not out for kind, out in kinds)
    texts = any(kind == "str" for kind, _ in kinds)
    return all(kind in PLAIN for kind, _ in kinds) and (not texts or (own and reads))
