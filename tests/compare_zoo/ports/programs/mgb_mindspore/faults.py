# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of mindspore."""

FAULTS = {
    "bn_eps": [("beta, eps=1e-5):", "beta, eps=1e-2):")],
    "pad_side": [("stride=2, pad=(1, 1))", "stride=2, pad=(0, 1))")],
    "smooth_spread": [("self.off = smooth / classes", "self.off = smooth / (classes - 1)")],
    "decay_scaled": [("g = g / self.scale + decay", "g = (g + decay) / self.scale")],
    "lookahead": [("self.lr * (g + self.momentum * m)", "self.lr * m")],
}
