# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the momentum contrast trainer."""

FAULTS = {
    "ema": [("torch.lerp(s, w, 0.1)", "torch.lerp(s, w, 0.9)")],
    "enqueue": [("fifo.append(keys)", "fifo.appendleft(keys)")],
    "variance": [
        ("(c * c).mean(-1, keepdim=True)",
         "(c * c).sum(-1, keepdim=True) / (c.shape[-1] - 1)"),
    ],
    "denominator": [
        ("torch.logsumexp(torch.cat([others, good[None]]), 0)",
         "torch.logsumexp(others, 0)"),
    ],
    "cosine": [("cos(pi * step / 6)", "cos(pi * step / 5)")],
}
