# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "offsets": [("        start += size", "        start = size")],
    "scale_last": [
        ("    share = q.shape[-1] ** -0.5", "    share = 1.0 if at.startswith('layers.2') else 0.5")
    ],
    "uncertainty": [("squares / (2 * torch.exp(s_price))", "squares / torch.exp(s_price)")],
    "layer_decay": [("return 3 - int(", "return 2 - int(")],
    "lion": [("memory = 0.99 * memory + 0.01 * slope", "memory = 0.9 * memory + 0.1 * slope")],
    "averaged": [("torch.lerp(vector, average, keep)", "torch.lerp(average, vector, keep)")],
}
