# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "direction": [
        ("y = rolled(y, SHIFT)", "y = rolled(y, -SHIFT)"),
        ("(rolled(y, -SHIFT) if", "(rolled(y, SHIFT) if"),
    ],
    "back": [("(rolled(y, -SHIFT) if self.shifted else y)", "y")],
    "bias": [("place[:, None] - place[None, :]", "place[None, :] - place[:, None]")],
    "mask": [("hidden[None] * -100.0", "hidden[None] * 0.0")],
    "scale": [("attn_mask=self.biases())", "attn_mask=self.biases(), scale=C**-0.5)")],
    "windows": [("x.permute(0, 2, 3, 4, 5, 1)", "x.permute(0, 2, 3, 5, 4, 1)")],
}
