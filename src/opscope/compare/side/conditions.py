# SPDX-License-Identifier: Apache-2.0
"""How an operator carries an error of its inputs to its outputs, by its family, as vector
arithmetic over recorded norms.

allowed = own rounding + SLACK * condition * input error. Own rounding is gamma_n * sum|a||b| for
sums and products, with gamma_n ~ sqrt(n) u (N. Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., 3.1 and 4.2; the statistical form). The condition of a product is |A||B|/|AB|,
that of a sum |x| sqrt(n)/|sum|, that of a normalisation |x| over its deviation; kernels that cancel
inside (softmax, losses) have a fixed generous one; where an arbitrarily small change may change
everything (sign, argmax, division by what may be near zero) it is infinite, and where nobody said
what an operator of a library is: such a call is judged only on inputs that are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.operators.catalogue import is_unknown, traits_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.arrays import Floats, Ints

SLACK = 8.0
STATISTICAL = 32.0  # further slack where the input error is only what statistics prove
PRODUCT, SUM, MEAN, LINEAR, SMOOTH, DELICATE, STEEP, MOVE, NORM, UNKNOWN = range(10)

_KINDS = {
    "product": PRODUCT,
    "sum": SUM,
    "mean": MEAN,
    "linear": LINEAR,
    "smooth": SMOOTH,
    "delicate": DELICATE,
    "steep": STEEP,
    "move": MOVE,
    "norm": NORM,
}


def error_kind(op: str) -> int:
    """Which of the kinds above an operator is; of torch's own DELICATE where nothing is known of
    it, of somebody's library UNKNOWN.
    """
    known = traits_of(op)
    return (
        _KINDS[known.error]
        if known.error
        else PRODUCT
        if known.contraction
        else MOVE
        if known.moves
        else UNKNOWN
        if is_unknown(op)
        else DELICATE
    )


def error_kind_of_result(word: str) -> int:
    """The same for a call between frameworks, where only the main result is compared: a maximum is
    as exact as what it is taken of.
    """
    return {"max_pool2d": MOVE, "pow": DELICATE}.get(word, error_kind(word))


class Norms:
    """What is known of each call's inputs on the golden side: sum and largest of the norms, that of
    the first, sizes, largest magnitude; one entry a call.
    """

    def __init__(self, count: int) -> None:
        self.total = np.zeros(count)
        self.largest = np.zeros(count)
        self.size = np.ones(count)
        self.reach = np.zeros(count)
        self.spread = np.ones(count)
        self.first = np.zeros(count)

    def add(
        self,
        call: Ints,
        norm: Floats,
        size: Ints,
        reach: Floats,
        mean: Floats,
    ) -> None:
        """All input rows, in the order of slots: norms, sizes, largest magnitudes and means."""
        known = finite(norm)
        self.first[call[::-1]] = known[::-1]  # of each call its first input is written last
        np.add.at(self.total, call, known)
        np.maximum.at(self.largest, call, known)
        np.maximum.at(self.size, call, np.maximum(size, 1).astype(np.float64))
        np.maximum.at(self.reach, call, finite(reach))
        rms = known / np.sqrt(np.maximum(size, 1))
        with np.errstate(all="ignore"):
            deviation = np.sqrt(np.maximum(rms**2 - finite(mean) ** 2, 0.0))
            np.maximum.at(
                self.spread, call, np.where(deviation > 0, np.minimum(rms / deviation, 1e6), 1.0)
            )


@np.errstate(over="ignore", invalid="ignore")  # norms and magnitudes may be infinite
def conditions(
    kinds: NDArray[np.int8],
    norms: Norms,
    call: Ints,
    norm: Floats,
    size: Ints,
) -> tuple[Floats, Floats]:
    """Condition of each output row, and its own rounding error in units of roundoff; norm and size
    are those of the output.
    """
    condition, rounding = np.empty(len(call)), np.empty(len(call))
    kind = kinds[call]
    for code in np.flatnonzero(np.bincount(kind)).tolist():
        rows = np.flatnonzero(kind == code)
        condition[rows], rounding[rows] = _carried(code, norms, call[rows], norm[rows], size[rows])
    return condition, rounding


def _carried(
    kind: int,
    norms: Norms,
    call: Ints,
    norm: Floats,
    size: Ints,
) -> tuple[Any, Floats]:
    """The same for rows of one kind."""
    total, reach = norms.total[call], np.maximum(norms.reach[call], 1.0)
    if kind == DELICATE:
        return _delicate(norms, call, norm, size)
    if kind == UNKNOWN:
        return np.inf, 128 * norms.spread[call] * np.sqrt(reach)
    if kind == NORM:
        return _of_norm(norms, call, norm, size)
    if kind == STEEP:
        return np.inf, 64 * np.sqrt(reach)
    outside = np.maximum(finite(norm), 1e-300)
    if kind == PRODUCT:
        largest = norms.largest[call]
        product = (
            np.maximum(largest * np.maximum(total - largest, 1e-300) / outside, 1.0)
            + total / outside
        )
        return product, 4 * np.sqrt(
            np.maximum(norms.size[call] / np.sqrt(np.maximum(size, 1)), 1.0)
        ) * product
    plain = np.maximum(total / outside, 1.0)
    if kind in {SUM, MEAN}:
        root = np.sqrt(np.maximum(norms.size[call] / np.maximum(size, 1), 1.0))
        return (
            (plain * root, 4 * root * plain)
            if kind == SUM
            else (plain / root + 1, 4 * root + 4 * plain / root)
        )
    if kind == LINEAR:
        return plain * reach, 8 * plain * reach
    return (
        (4 * plain, 64 * np.minimum(plain, 1e4))
        if kind == SMOOTH
        else (plain, np.full(len(call), 2.0))
    )


def _delicate(norms: Norms, call: Ints, norm: Floats, size: Ints) -> tuple[Floats, Floats]:
    """The same for kernels that cancel inside: the gradient of a softmax, and of a norm's weight
    and bias, are sums over the first input, and may be next to nothing beside it.
    """
    reach = np.maximum(norms.reach[call], 1.0)
    root = np.sqrt(np.maximum(norms.size[call] / np.maximum(size, 1), 1.0))
    lost = root * norms.first[call] / np.maximum(finite(norm), 1e-300)
    rounding = 128 * norms.spread[call] * np.sqrt(reach)
    return np.fmax(1e3, lost), np.fmax(rounding, 4 * lost)


def _of_norm(norms: Norms, call: Ints, norm: Floats, size: Ints) -> tuple[Floats, Floats]:
    """The same for normalisations; the mean that one gives beside its result is a sum that may
    cancel: of what is centred already nothing but rounding is left.
    """
    spread, reach = norms.spread[call], np.maximum(norms.reach[call], 1.0)
    condition, rounding = np.minimum(8 * spread, 1e3), 128 * spread * np.sqrt(reach)
    beside = np.flatnonzero(size < norms.size[call])
    if len(beside):
        mean = _carried(MEAN, norms, call[beside], norm[beside], size[beside])
        condition[beside] = np.fmax(condition[beside], mean[0])
        rounding[beside] = np.fmax(rounding[beside], mean[1])
    return condition, rounding


def finite(column: Floats) -> Floats:
    """The column with numbers alone: NaN as 0, infinities as the largest ones."""
    return column if np.isfinite(column).all() else np.nan_to_num(column)
