# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["diffusers"]
FAULTS = {
    "sin_cos": [("(angles.cos(), angles.sin())", "(angles.sin(), angles.cos())")],
    "heads": [("self.heads = width // head_width", "self.heads = head_width")],
    "pad": [
        ("stride=2, padding=1)", "stride=2)"),
        ("self.down(x1)", "self.down(F.pad(x1, (0, 1, 0, 1)))"),
    ],
    "snr": [("/ (ratio + 1)) / 4", "/ ratio) / 4")],
    "clip": [("    start = start.clamp(-1, 1)  # <- clip\n", "")],
}
