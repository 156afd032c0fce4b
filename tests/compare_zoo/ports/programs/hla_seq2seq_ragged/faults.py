# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the sentence-by-sentence encoder-decoder."""

FAULTS = {
    "causal_shift": [
        (".triu(1)", ".triu(2)"),
    ],
    "smooth_spread": [
        ("* 0.9 + 0.1 / V", "* 0.9 + 0.1 / (V - 1)"),
    ],
    "pool_count": [
        ("encode(w, s).mean(0)", "encode(w, s).sum(0) / 9"),
    ],
    "warm_step": [
        ("n / 3 ** 1.5", "(n - 1) / 3 ** 1.5"),
    ],
    "bias_correction": [
        ("lr * fix / (1 - 0.9 ** n) * mom[k]", "lr * fix * mom[k]"),
    ],
}
