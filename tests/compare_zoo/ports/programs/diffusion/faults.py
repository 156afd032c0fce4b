# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "times": [("[angles.cos(), angles.sin()]", "[angles.sin(), angles.cos()]")],
    "groups": [("WIDTH, GROUPS, TRAIN_STEPS = 8, 4, 50", "WIDTH, GROUPS, TRAIN_STEPS = 8, 2, 50")],
    "chunks": [("scale, shift = old", "shift, scale = old")],
    "one": [(", 1 + scale[..., None, None]", ", scale[..., None, None]")],
    "scale": [("alpha=c**-0.5", "alpha=c**-1")],
    "mixed": [("(1 - ab) ** 0.5 * noise", "(1 - ab) * noise")],
    "clipped": [("clean = torch.clip(clean, -1.0, 1.0)", "clean = torch.clip(clean, -2.0, 2.0)")],
}
