# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of moe."""

FAULTS = {
    "balance": [("* mask1.mean(0)).mean() * e * e", "* mask1.mean(0)).mean() * e")],
    "queue": [("- mask2 + mask1.sum(0, keepdim=True)", "- mask2")],
    "gate_norm": [("gate = gate / total", "gate = gate / 1.0")],
    "router_lr": [('0.05 if k == "gate" else 0.5', '0.05 if k == "router" else 0.5')],
    "dampen": [("mu * velocity[k] + g", "mu * velocity[k] + (1 - mu) * g")],
}
