# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

OF = "vit"
FAULTS = {
    "patches": [("kernel.flatten(1)", "kernel.permute(0, 2, 3, 1).flatten(1)")],
    "scale": [("(DIM // HEADS) ** -0.5", "DIM**-0.5")],
    "layer_scale": [("x * self.gamma", "x * 0.05")],
    "position": [("x = x + self.pos_embed", "x = x + self.pos_embed.roll(1, 1)")],
    "pooled": [("self.head(x[:, 0])", "self.head(x[:, 1:].mean(1))")],
    "normalised": [(".sub(0.5).div(0.5)", ".sub(0.485).div(0.229)")],
    "smoothing": [(", label_smoothing=0.1", "")],
}
