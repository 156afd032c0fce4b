# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the energy model trained by persistent contrastive divergence."""

FAULTS = {
    "raw_precision": [
        ("0.5 * torch.dot(prec.exp(), x ** 2)",
         "0.5 * torch.dot(prec, x ** 2)"),
    ],
    "penalty_factor": [
        ("return 0.2 * (both * both).mean()",
         "return 0.1 * (both * both).mean()"),
    ],
    "noise_scale": [
        ("0.3 * (2 * size) ** 0.5 * kick",
         "0.3 * 2 * size ** 0.5 * kick"),
    ],
    "pool_stale": [
        ("return State(net, prec, trace, pool)",
         "return State(net, prec, trace, s.pool)"),
    ],
    "prec_turn": [
        ("if k % 2 else s.prec",
         "if k % 2 == 0 else s.prec"),
    ],
}
