# SPDX-License-Identifier: Apache-2.0
"""Mistakes of porting the looped mixture of experts to one-hot dispatch."""

FAULTS = {
    "gate_renorm": [("g1, g2 = g1 / (g1 + g2), g2 / (g1 + g2)", "g1, g2 = g1, g2")],
    "second_offset": [("second.cumsum(0) - 1 + first.sum(0)", "second.cumsum(0) - 1")],
    "balance_share": [("load_share = first.mean(0)", "load_share = (first + second).mean(0)")],
    "bias_decay": [('decays = not name.endswith(("_b", "_g"))', "decays = p[name].ndim > 1")],
    "clip_global": [("grad = grad * factor", "grad = grad * torch.clamp(HP[\"max_norm\"] / (grad.norm() + 1e-6), max=1.0)")],
}
