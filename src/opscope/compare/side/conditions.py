# SPDX-License-Identifier: Apache-2.0
"""How an operator carries an error of its inputs to its outputs, by its family, as vector arithmetic over recorded norms.

allowed = own rounding + SLACK * condition * input error. Own rounding is gamma_n * sum|a||b| for sums and products, with
gamma_n ~ sqrt(n) u (N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.1 and 4.2; the statistical form).
The condition of a product is |A||B|/|AB|, that of a sum |x| sqrt(n)/|sum|, that of a normalisation |x| over its deviation; kernels
that cancel inside (softmax, losses) have a fixed generous one; where an arbitrarily small change may change everything (sign, argmax,
division by what may be near zero) it is infinite: such a call is judged only on inputs that are equal.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.operators.catalogue import family, traits_of, words_with

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLACK = 8.0
STATISTICAL = 32.0  # further slack where the input error is only what statistics prove
PRODUCT, SUM, MEAN, LINEAR, SMOOTH, DELICATE, STEEP, MOVE, NORM = range(9)

_SUMS = frozenset({
    "sum", "nansum", "cumsum", "index_add", "scatter_add", "embedding_dense_backward", "bincount", "norm", "linalg_vector_norm",
    "biasaddgrad", "reduce_sum", "allreduce", "allreduce_", "reduce_scatter_tensor", "col2im", "foreach_norm",
})  # fmt: skip
_MEANS = frozenset({
    "mean", "nanmean", "avg_pool2d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d", "avgpool",
})  # fmt: skip
_LINEAR = frozenset({
    "add", "sub", "rsub", "neg", "lerp", "addcmul", "mul", "__add__", "__sub__", "__mul__", "__radd__", "__rsub__", "__rmul__",
    "__iadd__", "__isub__", "__imul__", "biasadd", "addn", "add_n", "tensoradd",
})  # fmt: skip
_SMOOTH = frozenset({
    "gelu", "relu", "silu", "tanh", "sigmoid", "leaky_relu", "elu", "mish", "hardswish", "hardtanh", "clamp", "softplus", "erf",
    "sin", "cos", "abs", "square", "gelu_backward", "silu_backward", "tanh_backward", "sigmoid_backward", "threshold_backward",
    "relugrad", "gelugrad", "dropout", "native_dropout_backward", "upsample_bilinear2d", "upsample_nearest2d",
})  # fmt: skip
_NORMS = frozenset({
    "native_layer_norm", "layer_norm", "layernorm", "layernormext", "native_group_norm", "group_norm", "groupnorm", "rms_norm", "rmsnorm",
    "npu_rms_norm", "_fused_rms_norm", "native_batch_norm", "batch_norm", "batchnorm", "_native_batch_norm_legit", "instance_norm",
})  # fmt: skip
_STEEP = re.compile(
    r"^(div|reciprocal|rsqrt|sqrt|log\w*|pow|sign|sgn|argmax|argmin|argsort|sort|topk|kthvalue|median|mode|floor|ceil|round|trunc|fmod|"
    r"remainder|eq|ne|lt|le|gt|ge|where|nonzero|unique\w*|_unique\w*|bernoulli|multinomial|atan2|addcdiv|isnan|isinf|isfinite|searchsorted|"
    r"bucketize|bincount|linalg_\w+|inverse|det|svd|qr|cholesky\w*|_fused_\w+|_foreach_(div|reciprocal|rsqrt|sqrt|pow|addcdiv|log|sign)\w*|"
    r"__truediv__|__itruediv__|__rtruediv__|__pow__|__floordiv__|__(eq|ne|lt|le|gt|ge)__|apply\w+|\w*adam\w*|\w*momentum|\w*sgd|"
    r"_local_scalar_dense|item|acos|asin|erfinv|logit|cummax|cummin|max_pool\w*|maxpool\w*|histc|realdiv|floordiv|nms|quantize\w*|"
    r"fake_quantize\w*|linalg\w*|lgamma|digamma|random\w*|randn\w*|rand\w*|normal|uniform|native_dropout|step|optimizer\w*)$"
)
_RANDOM = re.compile(
    r"^(native_dropout|dropout\w*|alpha_dropout|feature_dropout|bernoulli|normal\w*|uniform\w*|random|rand|randn|rand_like|randn_like|randint\w*|"
    r"randperm|multinomial|exponential|cauchy|log_normal|geometric|poisson|rrelu\w*|standardnormal|standardlaplace|uniformreal|uniformint|"
    r"truncatednormal|statelessdropoutgenmask|dropoutgenmask|dropoutdomask|randomuniform\w*|multinomial\w*|gumbel_softmax|trunc_normal|"
    r"kaiming_\w+|xavier_\w+|orthogonal|_fused_dropout|philox\w*|npu_dropout\w*|_npu_dropout\w*)_?$"
)
HARMLESS = words_with("view") | words_with("cast") | frozenset({
    "contiguous", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "transdata", "identity", "load",
    "depend", "clone", "record_stream", "lift_fresh", "zeros_like", "ones_like", "tensormove", "memset", "_local_scalar_dense",
    "is_nonzero", "zeros", "ones", "full", "full_like", "scalar_tensor", "new_zeros", "new_ones", "new_full", "arange",
})  # fmt: skip


def kind_of(op: str) -> int:
    """Which of the kinds above an operator is; DELICATE where nothing is known of it."""
    name = family(op)
    bare = name.removesuffix("grad") if name not in _SUMS else name
    if name in _NORMS:
        return NORM
    if _STEEP.match(name):
        return STEEP
    known = traits_of(op)
    if known.contraction:
        return PRODUCT
    for kind, words in ((SUM, _SUMS), (MEAN, _MEANS), (LINEAR, _LINEAR), (SMOOTH, _SMOOTH)):
        if name in words or (bare in words and kind == SMOOTH):
            return kind
    if known.moves:
        return MOVE
    return LINEAR if name.removeprefix("_foreach_") in _LINEAR else DELICATE


def kind_of_result(word: str) -> int:
    """The same for a call between frameworks, where only the main result is compared: a maximum is as exact as what it is taken of."""
    return {"max_pool2d": MOVE, "pow": DELICATE}.get(word, kind_of(word))


def is_random(op: str) -> bool:
    """Whether the operator draws random numbers."""
    return _RANDOM.match(family(op)) is not None


class Norms:
    """What is known of each call's inputs on the golden side: sum and largest of the norms, sizes, largest magnitude; one entry a call."""

    def __init__(self, count: int) -> None:
        self.total = np.zeros(count)
        self.largest = np.zeros(count)
        self.size = np.ones(count)
        self.reach = np.zeros(count)
        self.spread = np.ones(count)

    def add(
        self,
        call: NDArray[np.int64],
        norm: NDArray[np.float64],
        size: NDArray[np.int64],
        reach: NDArray[np.float64],
        mean: NDArray[np.float64],
    ) -> None:
        """Input rows: norms, sizes, largest magnitudes and means."""
        known = finite(norm)
        np.add.at(self.total, call, known)
        np.maximum.at(self.largest, call, known)
        np.maximum.at(self.size, call, np.maximum(size, 1).astype(np.float64))
        np.maximum.at(self.reach, call, finite(reach))
        rms = known / np.sqrt(np.maximum(size, 1))
        with np.errstate(all="ignore"):
            deviation = np.sqrt(np.maximum(rms**2 - finite(mean) ** 2, 0.0))
            np.maximum.at(self.spread, call, np.where(deviation > 0, np.minimum(rms / deviation, 1e6), 1.0))


@np.errstate(over="ignore", invalid="ignore")  # norms and magnitudes may be infinite
def conditions(
    kinds: NDArray[np.int8], norms: Norms, call: NDArray[np.int64], norm: NDArray[np.float64], size: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Condition of each output row, and its own rounding error in units of roundoff; norm and size are those of the output."""
    condition, rounding = np.empty(len(call)), np.empty(len(call))
    kind = kinds[call]
    for code in np.flatnonzero(np.bincount(kind)).tolist():
        rows = np.flatnonzero(kind == code)
        condition[rows], rounding[rows] = _carried(code, norms, call[rows], norm[rows], size[rows])
    return condition, rounding


def _carried(
    kind: int, norms: Norms, call: NDArray[np.int64], norm: NDArray[np.float64], size: NDArray[np.int64]
) -> tuple[Any, NDArray[np.float64]]:
    """The same for rows of one kind."""
    total, reach = norms.total[call], np.maximum(norms.reach[call], 1.0)
    if kind == DELICATE:
        return 1e3, 128 * norms.spread[call] * np.sqrt(reach)
    if kind == NORM:
        return np.minimum(8 * norms.spread[call], 1e3), 128 * norms.spread[call] * np.sqrt(reach)
    if kind == STEEP:
        return np.inf, 64 * np.sqrt(reach)
    outside = np.maximum(finite(norm), 1e-300)
    if kind == PRODUCT:
        largest = norms.largest[call]
        product = np.maximum(largest * np.maximum(total - largest, 1e-300) / outside, 1.0) + total / outside
        return product, 4 * np.sqrt(np.maximum(norms.size[call] / np.sqrt(np.maximum(size, 1)), 1.0)) * product
    plain = np.maximum(total / outside, 1.0)
    if kind in {SUM, MEAN}:
        root = np.sqrt(np.maximum(norms.size[call] / np.maximum(size, 1), 1.0))
        return (plain * root, 4 * root * plain) if kind == SUM else (plain / root + 1, 4 * root + 4 * plain / root)
    if kind == LINEAR:
        return plain * reach, 8 * plain * reach
    return (4 * plain, 64 * np.minimum(plain, 1e4)) if kind == SMOOTH else (plain, np.full(len(call), 2.0))


def finite(column: NDArray[np.float64]) -> NDArray[np.float64]:
    """The column with numbers alone: NaN as 0, infinities as the largest ones."""
    return column if np.isfinite(column).all() else np.nan_to_num(column)
