# SPDX-License-Identifier: Apache-2.0
"""What the reasons that findings give mean, and what is usually done about them: here those of an
overflow or a NaN, beside it those of crashes, ranks and differences.
"""

from __future__ import annotations

import re

from opscope.judge.difference_reasons import PARTINGS, PATTERNS
from opscope.judge.ending_reasons import CRASHES, RANKS
from opscope.judge.origin_reasons import ORIGINS

OVERFLOWS: dict[str, str] = {
    "division by the scalar 0": "the program divides by the number 0: often a count or a length "
    "that is empty",
    "division by zero": "elements of the divisor are 0: add a small number to it, or put another "
    "number in their place (torch.where) before dividing, not after",
    "divisors in …": "no divisor is 0, but they are so small that the quotient leaves its type: "
    "bound them from below",
    "logarithm of a negative number": "a logarithm is defined above 0 (log1p: above -1): bound its "
    "argument, or look for what made it negative",
    "logarithm of zero": "log(0) is -inf: bound the argument from below, or compute in logarithms "
    "from the start (log_softmax, logsigmoid)",
    "reciprocal of the root of zero": "1/sqrt(0): add a small number inside of the root; the "
    "gradient of a root at 0 is that, too",
    "square root of a negative number": "a root is defined from 0 on: often a difference that "
    "rounding made negative; bound it at 0",
    "exponential of … leaves …": "the exponential is beyond the largest number of its type: take "
    "the maximum away first, as softmax and logsumexp do, or bound the argument",
    "every element of a row is masked with -inf": "a softmax of nothing but -inf is 0/0: leave an "
    "element of each row unmasked, or mask with the lowest finite number",
    "power … of zero": "a negative power of 0 is a division by 0: add a small number to the base",
    "fractional power of a negative number": "it has no real value: bound the base at 0",
    "base in …, result leaves …": "the power is beyond the largest number of its type: a smaller "
    "base, or a wider type for this line",
    "infinity times zero": "an infinity, often a mask's, meets a 0, and that is NaN: choose by "
    "torch.where or masked_fill, do not multiply by a mask",
    "infinity minus infinity": "two infinities cancel to NaN: often a mask of -inf, added twice or "
    "taken away again",
    "mean of nothing": "a mean over no element is 0/0: an empty batch, a mask that leaves nothing",
    "mean over no target": "every target is ignored (ignore_index), so the mean of the loss is "
    "0/0: leave such a batch out, or take the sum",
    "a target's class has log-probability -inf": "the loss is infinite: the class of a target was "
    "masked, or its probability is 0",
    "a mask of -inf is multiplied or leaves a row empty": "-inf times 0 is NaN, and a row of which "
    "nothing is left has no softmax: mask with masked_fill, and leave an element in each row",
    "argument in … lies outside of the function's domain": "acos, asin, atanh and their like are "
    "defined on an interval: bound the argument, which rounding may push over its end",
    "a variance of 0 with eps 0": "a normalisation divides by the root of the variance: give it an "
    "eps, or, where sums leave their type, compute it in float32",
    "result leaves …": "a sum or a product is beyond the largest number of its type: smaller "
    "inputs (scale them first), bfloat16 or float32 for this line",
    "saturated at …, the end of the range of …": "an integer was clipped at the end of its type: "
    "int64, or smaller numbers",
    "saturated at …": "the device clips what leaves a type to its largest number in place of "
    "infinity: what is said of the same operator where that is infinite holds here",
    "… has no …": "a negative number was converted to an unsigned integer type: bound it at 0",
    "invalid floating-point operation": "an operation without an answer, which is NaN: 0/0, "
    "inf - inf, 0 * inf, a root or a logarithm of a negative number",
    "… to … overflow": "a conversion to a type of smaller range met a number beyond its largest: "
    "keep this tensor in its type, or in bfloat16",
    "input in …": "what the operator read; no more is known of why its result is not finite",
    "… leaves …": "a number is beyond the largest of the type that it is converted to: keep this "
    "tensor in its type, or in bfloat16",
}

# Whatever stands for "…": numbers, ranges, types. The first that fits a text is its meaning, so the
# general ones come last, those of an overflow among them.
REASONS: dict[str, str] = CRASHES | RANKS | ORIGINS | PARTINGS | PATTERNS | OVERFLOWS


def reason_in(text: str) -> str | None:
    """The reason that a text is, or holds: "why  division by zero (1 of 16 divisors are 0)"."""
    for reason in REASONS:
        pattern = ".+?".join(re.escape(part) for part in reason.split("…"))
        if re.search(pattern, text, re.IGNORECASE):
            return reason
    return None
