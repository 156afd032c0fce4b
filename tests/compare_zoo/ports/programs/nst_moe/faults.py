# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of moe."""

FAULTS = {
    "renormalise": [("(prob * chosen) / (prob * chosen).sum(-1, keepdim=True)", "prob * chosen")],
    "gate_side": [("act, lin = torch.einsum", "lin, act = torch.einsum")],
    "running_mean": [("average = lower / lower.sum(1, keepdim=True)", "average = lower / T")],
    "balance_layers": [("E * (f * p).sum()", "E * sum((u * b).sum() for u, b in zip(usage, belief)) / N_LAYER")],
    "decay_scope": [("lr * (update + 0.1 * w.data)", "lr * (update + 0.1 * w.data * (w.ndim > 1))")],
}
