# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of flax."""

FAULTS = {
    "ln_eps": [("epsilon=1e-5", "epsilon=1e-6")],
    "gelu_form": [
        ("0.5 * x * (1 + torch.erf(x / math.sqrt(2)))", "x * torch.sigmoid(1.702 * x)")
    ],
    "pool_length": [("keep.sum(1, keepdim=True)", "keep.shape[1]")],
    "schedule_shift": [("(count + 1) / (warmup + 1)", "count / warmup")],
    "decay_mask": [("+ 0.1 * m * p,", "+ 0.1 * p,")],
}
