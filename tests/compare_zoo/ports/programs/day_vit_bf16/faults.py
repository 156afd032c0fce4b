# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "order": [
        (
            "self.qkv(x).view(batch, length, 3, N_HEADS, -1)",
            "self.qkv(x).view(batch, length, N_HEADS, 3, -1)",
        ),
        ("qkv.permute(2, 0, 3, 1, 4)", "qkv.permute(3, 0, 2, 1, 4)"),
    ],
    "mlp": [("self.down(F.gelu(self.up(self.norm2(x))))", "self.down(self.up(self.norm2(x)))")],
    "patches": [("cells.permute(0, 2, 4, 1, 3, 5)", "cells.permute(0, 2, 4, 3, 5, 1)")],
    "places": [('state["pos_embed"][0],', 'state["pos_embed"][0].roll(-1, 0),')],
    "stream": [
        (
            "            x = layer(x)\n        x = self.norm(x)",
            "            x = layer(x).to(HALF)\n        x = self.norm(x)",
        )
    ],
    "smoothing": [("0.1 / KINDS", "0.1 / (KINDS - 1)")],
}
