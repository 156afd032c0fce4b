# SPDX-License-Identifier: Apache-2.0
"""Faults of the mixture on stacked experts."""

FAULTS = {
    "gate_renorm": [("share = best.values / best.values.sum(-1, True)", "share = best.values")],
    "balance_counts": [("one_hot(best.indices, p.shape[1]).sum(1).float()",
                        "one_hot(best.indices[:, 0], p.shape[1]).float()")],
    "swiglu_halves": [("gate, value = hidden", "value, gate = hidden")],
    "rotary_pairs": [("[pair_up(q), pair_up(k), take", "[q, k, take")],
    "warmup_start": [("min(1.0, (step + 1) / 3)", "min(1.0, step / 3)")],
}
