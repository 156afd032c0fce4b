# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "scale": [
        (
            "F.scaled_dot_product_attention(q, k, v, allow)",
            "F.scaled_dot_product_attention(q, k, v, allow, scale=1.0)",
        )
    ],
    "padding": [
        (
            "allow = past & real[:, None, None, :]",
            "allow = past & torch.ones_like(real)[:, None, None, :]",
        )
    ],
    "activation": [
        ('F.gelu(self.up(self.norm2(x)), approximate="tanh")', "F.silu(self.up(self.norm2(x)))")
    ],
    "positions": [
        (
            "where = torch.arange(10) - start[:, None]",
            "where = torch.arange(10) - 0 * start[:, None]",
        )
    ],
    "warmup": [("4e-3 * min(it + 1, 3) / 3", "4e-3 * min(it + 1, 4) / 4")],
}
