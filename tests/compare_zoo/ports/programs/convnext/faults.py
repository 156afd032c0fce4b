# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "eps": [
        (
            "        self.norm = ChannelNorm(channels)",
            "        self.norm = ChannelNorm(channels, 1e-2)",
        )
    ],
    "first_norm": [("correction=0", "correction=1")],
    "kernel": [
        (
            "value.view_as(mine[new])",
            "value.transpose(-1, -2).reshape(mine[new].shape) if value.dim() == 4 else value.view_as(mine[new])",
        )
    ],
    "gamma": [("x + self.gain * y", "x + y * self.gain.square()")],
    "residual": [("y = self.mix(x)  #", "y = x = self.mix(x)  #")],
    "pool": [("AdaptiveAvgPool2d", "AdaptiveMaxPool2d")],
    "nesterov": [(", nesterov=True", "")],
    "average": [("slow.lerp_(fast, 0.1)", "slow.lerp_(fast, 0.9)")],
}
