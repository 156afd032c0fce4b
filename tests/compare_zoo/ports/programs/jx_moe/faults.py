# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "jax"
FAULTS = {
    "renormalized": [
        (
            "gates, chosen = jax.lax.top_k(probs, TOP)",
            "gates, chosen = jax.lax.top_k(probs, TOP); gates = gates / gates.sum(-1, keepdims=True)",
        )
    ],
    "expert_layout": [('stacked("down", "weight").swapaxes(1, 2)', 'stacked("down", "weight")')],
    "balance": [
        (
            "EXPERTS * (share * probs.mean((0, 1))).sum() / TOP",
            "(share * probs.mean((0, 1))).sum() / TOP",
        )
    ],
    "pooling": [("(x * weights).sum(1) / weights.sum(1)", "(x * weights).mean(1)")],
    "bias_correction": [("m_hat = m / (1 - b1**t)", "m_hat = m")],
}
