# SPDX-License-Identifier: Apache-2.0
"""What in the inputs made a call's result NaN or infinite, in words: one rule for each operator
family.
"""

from __future__ import annotations

import math

from opscope.judge.limits import largest_finite
from opscope.judge.reading import Reading, magnitude
from opscope.judge.rules import RULES, Facts


def explain(facts: Facts) -> tuple[str, ...]:
    """What in the inputs of a call made its NaN or infinities; empty where no rule knows."""
    rule = RULES.find(facts.op)
    return () if rule is None else rule(facts)


def _first(facts: Facts) -> Reading | None:
    return facts.inputs[0] if facts.inputs else None


def _count(number: int, of: int | None, what: str) -> str:
    return f"{number} of {of} {what}" if of is not None else f"{number} {what}"


def _range(reading: Reading) -> str:
    return (
        f"[{reading.min:.6g}, {reading.max:.6g}]"
        if reading.min is not None and reading.max is not None
        else "nothing finite"
    )


def _limit(facts: Facts) -> str:
    dtype = facts.outputs[0].dtype
    largest = largest_finite(dtype)
    return dtype if largest is None else f"{dtype} (largest {largest:.6g})"


@RULES.of("div", "true_divide", "floor_divide", "remainder", "fmod", "addcdiv", "div_no_nan")
def division(facts: Facts) -> tuple[str, ...]:
    """a / b"""
    divisor = facts.inputs[-1] if len(facts.inputs) > 1 else None
    if divisor is None:
        scalar = facts.arguments.number("1")
        return ("division by the scalar 0",) if scalar == 0 else ()
    words = []
    if divisor.zero:
        words.append(f"division by zero ({_count(divisor.zero, divisor.size, 'divisors are 0')})")
    elif divisor.min is not None:
        words.append(f"divisors in {_range(divisor)}")
    return tuple(words)


@RULES.of("reciprocal")
def reciprocal(facts: Facts) -> tuple[str, ...]:
    """1 / a"""
    a = _first(facts)
    return (
        (f"division by zero ({_count(a.zero, a.size, 'divisors are 0')})",)
        if a is not None and a.zero
        else ()
    )


@RULES.of("log", "log2", "log10", "log1p", "xlogy", "logit")
def logarithm(facts: Facts) -> tuple[str, ...]:
    """log a, defined above 0 (log1p: above -1)"""
    a = facts.inputs[-1] if facts.inputs else None
    if a is None:
        return ()
    words = []
    if a.min is not None and a.min < 0 and facts.nan:
        words.append(f"logarithm of a negative number (down to {a.min:.6g})")
    if a.zero:
        words.append(f"logarithm of zero ({_count(a.zero, a.size, 'elements are 0')})")
    return tuple(words)


@RULES.of("sqrt", "rsqrt")
def root(facts: Facts) -> tuple[str, ...]:
    """Square root, defined from 0; its reciprocal, above 0"""
    a = _first(facts)
    if a is None:
        return ()
    words = []
    if a.min is not None and a.min < 0 and facts.nan:
        words.append(f"square root of a negative number (down to {a.min:.6g})")
    if a.zero and facts.infinite:
        words.append(f"reciprocal of the root of zero ({_count(a.zero, a.size, 'elements are 0')})")
    return tuple(words)


@RULES.of("exp", "exp2", "expm1", "cosh", "sinh")
def exponential(facts: Facts) -> tuple[str, ...]:
    """exp a"""
    a = _first(facts)
    if a is None or a.max is None:
        return ()
    return (f"exponential of {a.max:.6g} leaves {_limit(facts)}",)


@RULES.of("_softmax", "softmax", "_log_softmax", "log_softmax", "_masked_softmax", "_safe_softmax")
def softmax(facts: Facts) -> tuple[str, ...]:
    """exp(a - max a) / sum"""
    a = _first(facts)
    if a is None:
        return ()
    return (
        ("every element of a row is masked with -inf",) if a.neg_inf else (f"input in {_range(a)}",)
    )


@RULES.of("pow")
def power(facts: Facts) -> tuple[str, ...]:
    """a ** b"""
    a, exponent = _first(facts), facts.arguments.number("1")
    if a is None:
        return ()
    if exponent is not None and exponent < 0 and a.zero:
        return (f"power {exponent:g} of zero ({_count(a.zero, a.size, 'elements are 0')})",)
    if facts.nan and a.min is not None and a.min < 0:
        return (f"fractional power of a negative number (down to {a.min:.6g})",)
    return (f"base in {_range(a)}, result leaves {_limit(facts)}",)


@RULES.of("mul", "addcmul", "square", "prod", "cumprod")
def product(facts: Facts) -> tuple[str, ...]:
    """a b"""
    if facts.nan and any(reading.neg_inf or reading.pos_inf for reading in facts.inputs):
        return ("infinity times zero",)
    if facts.nan and any(math.isinf(value) for _, value in facts.arguments.scalars):
        return ("infinity times zero",)
    return _leaves(facts)


@RULES.of(
    "add",
    "sub",
    "rsub",
    "sum",
    "mean",
    "cumsum",
    "var",
    "std",
    "linalg_vector_norm",
    "norm",
    "lerp",
    "mse_loss",
)
def addition(facts: Facts) -> tuple[str, ...]:
    """Sums"""
    if facts.nan and any(reading.neg_inf or reading.pos_inf for reading in facts.inputs):
        return ("infinity minus infinity",)
    if facts.nan and any(reading.size == 0 for reading in facts.inputs):
        return ("mean of nothing",)
    return _leaves(facts)


@RULES.of("nll_loss_forward", "nll_loss2d_forward", "nll_loss", "nll_loss_nd")
def negative_log_likelihood(facts: Facts) -> tuple[str, ...]:
    """-mean of the chosen elements"""
    a = _first(facts)
    if facts.nan:
        return ("mean over no target: every target is ignored",)
    return (
        ("a target's class has log-probability -inf",)
        if a is not None and a.neg_inf
        else _leaves(facts)
    )


@RULES.of(
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "addbmm",
    "matmul",
    "mv",
    "addmv",
    "dot",
    "vdot",
    "linear",
    "einsum",
    "convolution",
    "_convolution",
    "convolution_backward",
    "conv2d",
    "_scaled_mm",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_attention_math",
)
def contraction(facts: Facts) -> tuple[str, ...]:
    """Sums of products"""
    if any(reading.neg_inf for reading in facts.inputs):
        return ("a mask of -inf is multiplied or leaves a row empty",)
    return _leaves(facts)


@RULES.of("_to_copy", "to", "copy", "cast", "type", "npu_dtype_cast")
def conversion(facts: Facts) -> tuple[str, ...]:
    """One type to another"""
    a = facts.inputs[-1] if facts.inputs else None
    return () if a is None or a.max is None else (f"{magnitude(a):.6g} leaves {_limit(facts)}",)


@RULES.of("acos", "asin", "atanh", "acosh", "erfinv")
def inverse_function(facts: Facts) -> tuple[str, ...]:
    """Functions that are defined on an interval"""
    a = _first(facts)
    return () if a is None else (f"argument in {_range(a)} lies outside of the function's domain",)


@RULES.of(
    "native_batch_norm",
    "native_layer_norm",
    "native_group_norm",
    "_native_batch_norm_legit",
    "batch_norm",
    "layer_norm",
)
def normalisation(facts: Facts) -> tuple[str, ...]:
    """(a - mean) / sqrt(var + eps)"""
    a = _first(facts)
    return (
        ()
        if a is None
        else (f"input in {_range(a)}; a variance of 0 with eps 0, or sums beyond {_limit(facts)}",)
    )


def _leaves(facts: Facts) -> tuple[str, ...]:
    ranges = [
        f"{reading.slot}: {_range(reading)}"
        for reading in facts.inputs[:3]
        if reading.min is not None
    ]
    if not ranges or not facts.infinite:
        return ()
    return (f"result leaves {_limit(facts)}; inputs {', '.join(ranges)}",)
