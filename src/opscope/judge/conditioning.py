# SPDX-License-Identifier: Apache-2.0
"""How much an operator may magnify a relative error of its inputs: condition numbers, measured where the tensors tell, else by kind.

The relative condition number of y = f(x) is |f'(x)| |x| / |y|: of a sum the sum of the magnitudes over the magnitude of the sum, of a
product |A| |B| / |A B|, of exp the largest |x|, of a norm |x - mean| against |x| (N. Higham, Accuracy and Stability, 1.6 and 3.5).
"""

from __future__ import annotations

import math

from opscope.judge import families
from opscope.judge.agreement import NOISE
from opscope.judge.operators import family

# Of results about as large as their inputs, over all elements: a few times what is measured on random data.
_KINDS = {
    "exact": 2.0, "cast": 2.0, "arithmetic": 8.0, "elementary": 16.0, "composed": 8.0, "sum": NOISE, "product": 16.0, "loss": NOISE,
    "softmax": NOISE, "norm": 32.0, "attention": NOISE, "optimizer": NOISE, "transform": 4.0, "unknown": NOISE, "unjudged": math.inf,
}  # fmt: skip


def conditioning_of(op: str, *, scale_in: float | None = None, scale_out: float | None = None) -> float:
    """Answers how many times an operator may magnify a relative error.

    scale_in is what the operator's terms would come to if none cancelled (judge.terms.magnitude_of), scale_out what the result
    came to (its largest magnitude): their quotient is the condition number of sums and products, where it is more than the kind's.
    """
    known = _KINDS[families.kind_of(family(op))]
    if scale_in is None or not scale_out:
        return known
    return max(known, 2.0 * scale_in / scale_out)
