# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the TD3 agent."""

FAULTS = {
    "alive_shift": [
        ("(r * before)", "(r * go_on)"),
    ],
    "noise_order": [
        ("torch.clamp(eps * 0.2, -0.3, 0.3)", "0.2 * torch.clamp(eps, -0.3, 0.3)"),
    ],
    "joint_clip": [
        ("(0.2 / (sq.sqrt() + 1e-6))", "(0.2 / (sq.sum().sqrt() + 1e-6))"),
    ],
    "stale_target": [
        ("((qtarg, qnet), (ptarg, policy))", "((qtarg, qnet),)"),
    ],
    "actor_detach": [
        ("q.detach().abs().sum()", "q.abs().sum()"),
    ],
}
