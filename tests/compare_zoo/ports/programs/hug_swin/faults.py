# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "unmasked": [
        ("seen = scores.masked_fill(self.apart[None, :, None], -math.inf)", "seen = scores")
    ],
    "merge": [("x.permute(0, 1, 3, 4, 2, 5)", "x.permute(0, 1, 3, 2, 4, 5)")],
    "turned": [("at[:, None] - at[None, :] + W - 1", "at[None, :] - at[:, None] + W - 1")],
    "last_shift": [("if n % 2 and side > W else 0", "if n % 2 else 0")],
    "smoothing": [
        (
            "F.one_hot(labels, CLASSES) * (1 - SMOOTH) + SMOOTH / CLASSES",
            "F.one_hot(labels, CLASSES) * (1 - SMOOTH) + SMOOTH / (CLASSES - 1)",
        )
    ],
}
