# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

OF = "unet"
FAULTS = {
    "norm_eps": [("eps=1e-5", "eps=1e-3")],
    "momentum": [("momentum=0.1, eps", "momentum=0.9, eps")],
    "pool": [("self.down(F.max_pool2d(first, 2))", "self.down(F.avg_pool2d(first, 2))")],
    "joined": [("[second, self.up1(x)]", "[self.up1(x), second]")],
    "dice": [("inter = 2 * (probs * onehot)", "inter = (probs * onehot)")],
}
