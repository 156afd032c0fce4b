# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of convnext."""

FAULTS = {
    "grn_mean": [("energy.mean(-1, keepdim=True) + 1e-6", "energy.mean(0, keepdim=True) + 1e-6")],
    "grn_residual": [('gain = 1 + p[name + ".gamma"] * rel', 'gain = p[name + ".gamma"] * rel')],
    "pool_norm": [('layer_norm(p, "norm", x.mean((1, 2)))', 'layer_norm(p, "norm", x).mean((1, 2))')],
    "mix_share": [("(lam * ce(a) + (1 - lam) * ce(b))", "((1 - lam) * ce(a) + lam * ce(b))")],
    "cosine": [("math.cos(0.5 * math.pi * t / 4) ** 2", "math.cos(0.5 * math.pi * t / 4)")],
}
