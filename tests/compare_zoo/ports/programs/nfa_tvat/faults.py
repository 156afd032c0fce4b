# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the signal classifier with virtual adversarial training."""

FAULTS = {
    "pad_side": [
        ("pad(x, (k // 2, k // 2))",
         "pad(x, (k - 1, 0))"),
    ],
    "kl_direction": [
        ("(tlog.exp() * (tlog - logq))",
         "(logq.exp() * (logq - tlog))"),
    ],
    "unit_axis": [
        ("d.square().sum((1, 2), keepdim=True).sqrt()",
         "d.square().sum().sqrt()"),
    ],
    "plain_momentum": [
        ("lr * (grads[k] + mu * vel[k])",
         "lr * vel[k]"),
    ],
    "decay_shift": [
        ("min(0.9, it / (it + 3))",
         "min(0.9, (it + 1) / (it + 4))"),
    ],
}
