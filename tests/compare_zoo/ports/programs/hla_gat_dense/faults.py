# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the graph attention network."""

FAULTS = {
    "edge_direction": [
        ("into = (edges | eye).T", "into = edges | eye"),
    ],
    "head_mean": [
        (".sum(0) / 2 + self.b2", ".sum(0) + self.b2"),
    ],
    "link_mean": [
        ("/ (2 * count)", "/ count"),
    ],
    "restart": [
        ("(ep % 3) / 3", "ep / 3"),
    ],
    "decoupled_decay": [
        ("g = g + 5e-3 * b", "g = g.clone()"),
        ("(avg[k] / peak[k])", "(avg[k] / peak[k]) + lr * 5e-3 * b"),
    ],
}
