# SPDX-License-Identifier: Apache-2.0
"""Faults for the quantile forecaster."""

FAULTS = {
    "gate_halves": [
        ("content * torch.sigmoid(gate) + skip", "torch.sigmoid(content) * gate + skip")
    ],
    "head_average": [(".softmax(-1).sum(1) / CFG.heads", ".softmax(-1).sum(1)")],
    "pinball_side": [("over = pred - y[..., None]", "over = y[..., None] - pred")],
    "series_scale": [
        ("y[:, : CFG.past].abs().sum(1, keepdim=True) / CFG.past", "y.abs().mean(1, keepdim=True)")
    ],
    "warmup_index": [("(t * CFG.warmup**-1.5 if t", "((t - 1) * CFG.warmup ** -1.5 if t")],
}
