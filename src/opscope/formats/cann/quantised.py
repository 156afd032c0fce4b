# SPDX-License-Identifier: Apache-2.0
"""Operators between a quantisation and its reversal, told by names and element types in the graph as msaccucmp tells them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from opscope.formats.cann.fusion import FusedOp

_QUANTISES = re.compile(r"_quant_layer|/AscendQuant|/AscendWeightQuant|\.quant|\.weight_quant")
_REVERSES = re.compile(r"_dequant_layer|_anti_quant_layer|/AscendDequant|/AntiQuant|\.dequant|\.anti_quant")
_REVERSING = ("_dequant_layer", "AscendDequant", "_dequant")
_PLAIN, _BETWEEN, _QUANTISED, _REVERSED = range(4)


def marked(ops: Iterable[FusedOp]) -> list[FusedOp]:
    """Operators in the order of the graph, those between a quantisation and its reversal marked."""
    known: dict[str, list[int]] = {}
    found = []
    for op in ops:
        between = any(
            name in known and number < len(known[name]) and known[name][number] in (_QUANTISED, _BETWEEN) for name, number in op.producers
        )
        known[op.name] = [_output(op, dtype, between=between) for dtype in op.dtypes]
        reversing = all(kind == _REVERSED for kind in known[op.name])
        found.append(msgspec.structs.replace(op, quantised=between and not reversing))
    return found


def _output(op: FusedOp, dtype: str, *, between: bool) -> int:
    words = (op.name, "".join(op.originals or ()))
    if dtype == "DT_INT8" and any(_QUANTISES.search(word) for word in words):
        return _QUANTISED
    if dtype == "DT_FLOAT16" and any(_REVERSES.search(word) for word in words):
        return _REVERSED
    return _BETWEEN if between else _PLAIN


def has_true(op: FusedOp, io: str) -> bool:
    """Whether inputs, or outputs, of an operator have values that an original has: quantised ones have none."""
    if op.quantised:
        return False
    if io == "input":
        return op.op_type != "AscendDequant" and not op.name.endswith(_REVERSING)
    return op.op_type != "AscendQuant"
