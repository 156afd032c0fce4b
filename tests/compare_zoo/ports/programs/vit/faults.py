# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "patches": [("permute(2, 3, 1, 0)", "permute(1, 2, 3, 0)")],
    "heads": [("nn.MultiheadAttention(WIDTH, HEADS,", "nn.MultiheadAttention(WIDTH, 2,")],
    "layer_scale": [
        ("tokens + self.scale_1 * mixed", "tokens + mixed"),
        ("optimizer.zero_grad()", "model.zero_grad()"),
    ],
    "position": [("tokens + self.positions[1:]", "tokens + self.positions[:-1]")],
    "pooled": [("tokens[:, 0]  #", "tokens.mean(1)  #")],
    "normalised": [("/ 127.5 - 1", "/ 255")],
    "smoothing": [("1 - smoothing + smoothing / CLASSES", "1 - smoothing")],
}
