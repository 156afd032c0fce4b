# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the packed BiLSTM tagger."""

FAULTS = {
    "reverse_order": [
        ("hist[lens[who] - 1 - when, 1, who]", "hist[when, 1, who]"),
    ],
    "weighted_mean": [
        ("/ wt.sum()", "/ len(y)"),
    ],
    "accumulator": [
        ("torch.full_like(w, 0.01)", "torch.full_like(w, 0.0)"),
    ],
    "rate_decay": [
        ("rate = 0.05 / (1 + 0.1 * step)", "rate = 0.05 / (1 + 0.1 * (step + 1))"),
    ],
    "clip_root": [
        ("0.25 / (sq.sqrt().item() + 1e-6)", "0.25 / (sq.item() + 1e-6)"),
    ],
}
