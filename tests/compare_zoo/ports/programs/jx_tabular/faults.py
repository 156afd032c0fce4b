# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "jax"
FAULTS = {
    "padding_row": [("vectors * (ids != 0)[:, None]", "vectors")],
    "slope": [("nn.leaky_relu(x, negative_slope=0.2)", "nn.leaky_relu(x)")],
    "pos_weight": [
        (
            "-(pos_weight * positive + negative).mean()",
            "-(pos_weight * (positive + negative)).mean()",
        )
    ],
    "alpha": [("decay=0.99, eps=1e-8", "eps=1e-8")],
    "stairs": [(", staircase=True", "")],
}
