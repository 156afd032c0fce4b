# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the sample reweighting net."""

FAULTS = {
    "sum_attached": [
        ("w / w.sum().detach()",
         "w / w.sum()"),
    ],
    "weights_stale": [
        ("v, adam = adam.update(v, gv)",
         "new, adam = adam.update(v, gv)"),
        ("g = g + 5e-4 * theta",
         "g, v = g + 5e-4 * theta, new"),
    ],
    "momentum_mean": [
        ("0.9 * speed + g",
         "0.9 * speed + 0.1 * g"),
    ],
    "flip_mask": [
        ("torch.rand(n, generator=gen) < flip",
         "torch.rand(n, generator=gen) >= flip"),
    ],
    "gating": [
        ("torch.sigmoid(torch.tanh(",
         "torch.sigmoid(torch.relu("),
    ],
}
