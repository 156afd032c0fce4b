# SPDX-License-Identifier: Apache-2.0
"""Mistakes that can be put into the port."""

NEEDS = ["transformers"]
FAULTS = {
    "gelu_quick": [('F.gelu(h, approximate="tanh")', "h * torch.sigmoid(1.702 * h)")],
    "pad_targets": [
        ("targets = torch.where(targets == 0, IGNORE, targets)", "targets = targets.contiguous()"),
    ],
    "mean_of_means": [
        ("loss = summed / tokens", "loss = summed / int((y != IGNORE).sum()) / H.accumulate"),
    ],
    "warmup_shift": [("H.lr * step / H.warmup", "H.lr * (step + 1) / H.warmup")],
    "decay_everything": [("dict(params=vectors, weight_decay=0.0)", "dict(params=vectors, weight_decay=H.decay)")],
}
