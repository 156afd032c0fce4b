# SPDX-License-Identifier: Apache-2.0
"""Faults for the hierarchical softmax pair."""

FAULTS = {
    "branch_sign": [("F.softplus(-turns * margins)", "F.softplus(-turns.abs() * margins)")],
    "carry_bias": [("torch.sigmoid(1.0 - (bag @", "torch.sigmoid(0.0 - (bag @")],
    "token_normaliser": [("torch.cat(costs).mean()", "sum(c.mean() for c in costs) / CFG.micro")],
    "elementwise_clip": [
        ("g.clamp(-CFG.clip, CFG.clip)", "g * (CFG.clip / (g.norm() + 1e-6)).clamp(max=1.0)")
    ],
    "slow_pull": [("fast = dict(slow)", "slow = dict(slow)")],
}
