# SPDX-License-Identifier: Apache-2.0
"""How many terms one element of an operator's result sums up, and what their magnitudes add up to:
what judge.tolerance asks for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from opscope.judge import families
from opscope.operators.catalogue import family, traits_of

Shape = Sequence[int]
# Neighbours that an interpolated value is a sum of, by a part of the operator's name.
NEIGHBOURS = {"bicubic": 16, "trilinear": 8, "bilinear": 4, "linear": 2, "sampler": 16}


class Extent(Protocol):
    """Of an input: its number of elements, its norm and its extremes, over the finite elements;
    rows of table tensors have them.
    """

    @property
    def size(self) -> int | None: ...
    @property
    def l2norm(self) -> float | None: ...
    @property
    def min(self) -> float | None: ...
    @property
    def max(self) -> float | None: ...


def terms_of(op: str, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Answers how many terms one element of the result sums up, from the shapes of tensors; at
    least 1.

    Of products: the multiplications of all elements, which are the elements of both operands and
    the result multiplied and rooted (of m x k by k x n it is k), rounded up. Of norms and
    softmaxes: the last dimensions; of other reductions: elements (of losses that
    pick one of each row: rows) read for each element written, and of interpolations at least the
    neighbours that one is taken from.
    """
    name = family(op)
    kind = families.tolerance_kind(op)
    sizes = sorted((math.prod(shape) for shape in inputs), reverse=True)
    written = max((math.prod(shape) for shape in outputs), default=1)
    if not sizes or not sizes[0] or not written:
        return 1
    if kind in ("product", "attention", "unknown"):
        return _product_terms(name, inputs, outputs, sizes)
    if kind == "softmax":
        return max(inputs[0], default=1)
    if kind == "norm":
        return _norm_terms(name, inputs)
    if traits_of(op).running:  # as long as a dimension, and as large as what they read
        return max(inputs[0], default=1)
    if kind in ("sum", "loss"):
        labelled = len(inputs) > 1 and traits_of(op).labelled
        most = math.prod(inputs[1]) if labelled else sizes[0]
        read = -(-most // min((size for shape in outputs if (size := math.prod(shape))), default=1))
        return max(1, read, next((count for part, count in NEIGHBOURS.items() if part in name), 1))
    if kind == "transform":
        return sizes[0]
    return 1


def _norm_terms(name: str, inputs: Sequence[Shape]) -> int:
    """Layer norms run over what their weight covers, batch norms over all but the channels, others
    over at most one sample.
    """
    shape = inputs[0]
    total = math.prod(shape)
    if "batch" in name or name.startswith("bn"):
        return max(1, total // max(1, shape[1] if len(shape) > 1 else 1))
    if "backward" in name or "grad" in name:
        return max(max(shape, default=1), total // max(1, shape[-1] if shape else 1))
    if "layer" in name or "rms" in name:
        weights = [math.prod(other) for other in inputs[1:] if other]
        return max(1, weights[0] if weights else shape[-1] if shape else 1)
    return max(1, total // max(1, shape[0] if shape else 1))


def _product_terms(
    name: str, inputs: Sequence[Shape], outputs: Sequence[Shape], sizes: list[int]
) -> int:
    if "conv" in name and ("backward" in name or "grad" in name or "backprop" in name):
        return max(
            1,
            max(sizes[0], *(math.prod(shape) for shape in outputs))
            // max(1, min(shape[1] if len(shape) > 1 else 1 for shape in inputs)),
        )
    if "conv" in name:
        filters = [shape for shape in inputs[1:] if len(shape) >= 3]
        return max(1, math.prod(filters[0][1:])) if filters else 1
    operands = [shape for shape in inputs if len(shape) >= 1 and math.prod(shape) > 1]
    common = _inner(operands, outputs)
    return common or max(max(shape, default=1) for shape in inputs)


def _inner(operands: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Inner dimension of a product of the last two operands with two dimensions or more; 0 where
    there are none.
    """
    matrices = [shape for shape in operands if len(shape) >= 2]
    if len(matrices) < 2:
        return 0
    one, other = matrices[-2], matrices[-1]
    result = outputs[0] if outputs else ()
    shared = [n for n in one[-2:] if n in other[-2:]]
    inner = [n for n in shared if n not in tuple(result[-2:])] or shared
    return max(inner, default=0)


def magnitude_of(op: str, terms: int, inputs: Sequence[Extent]) -> float | None:
    """Answers what the terms' magnitudes add up to, of products and sums, from the norms of the
    inputs; None where they are unknown.

    Of n terms a b, by Cauchy and Schwarz, at most |row of a| |column of b|, each at most
    min(sqrt(n) max|a|, |a|); and about n rms(a) rms(b), twice which is taken where it is less.
    """
    kind = families.tolerance_kind(op)
    known = [
        extent
        for extent in inputs
        if extent.size
        and extent.l2norm is not None
        and extent.min is not None
        and extent.max is not None
    ]
    wanted = 2 if kind == "product" else 1
    if kind not in ("product", "sum") or len(known) < wanted or len(known) != len(inputs):
        return None
    factors = sorted((_factor(extent, terms) for extent in known), reverse=True)[:wanted]
    total = math.prod(factors) if kind == "product" else factors[0] * math.sqrt(terms)
    return total / terms if traits_of(op).error == "mean" else total


def _factor(extent: Extent, terms: int) -> float:
    norm, size = extent.l2norm or 0.0, extent.size or 1
    largest = max(abs(extent.min or 0.0), abs(extent.max or 0.0))
    return min(math.sqrt(terms) * largest, norm, 2.0 * norm * math.sqrt(terms / size))
