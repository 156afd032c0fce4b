# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "tensorflow"
FAULTS = {
    "bn_eps": [("(momentum=0.9, epsilon=1e-5)", "()")],
    "leak": [("layers.LeakyReLU(negative_slope=0.01)", "layers.LeakyReLU()")],
    "coupled": [
        (
            "keras.optimizers.Adam(0.02, epsilon=4e-10)",
            "keras.optimizers.Adam(0.02, epsilon=4e-10, weight_decay=0.05)",
        ),
        ("[g + 0.05 * v for g, v in zip(grads, variables)]", "list(grads)"),
    ],
    "padrow": [("super().call(inputs) * known", "super().call(inputs)")],
    "square": [('[w[f"blocks.{i}.fc.weight"].T]', '[w[f"blocks.{i}.fc.weight"]]')],
}
