# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["timm"]
FAULTS = {
    "same": [("    same_padding=True,  # <- same\n", "")],
    "kernels": [("value.permute(3, 2, 0, 1)", "value.permute(3, 2, 1, 0)")],
    "alpha": [("    alpha=0.25,  # <- alpha\n", "")],
    "agc": [(', mode="agc"', "")],
    "ema": [
        ("        self.ema.update(self.model)  # <- ema\n", ""),
        (
            "        self.optimizer.step()",
            "        self.ema.update(self.model)  # <- ema\n        self.optimizer.step()",
        ),
    ],
}
