# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "layout": [
        (
            "q, k, v = fused.unflatten(0, (HEADS, 3, HEAD)).unbind(1)",
            "q, k, v = fused.unflatten(0, (3, HEADS, HEAD)).unbind(0)",
        ),
    ],
    "sequential": [
        (
            "return x + y + self.mlp(self.ln2(x))",
            "x = x + y\n        return x + self.mlp(self.ln2(x))",
        ),
    ],
    "base": [("torch.pow(10000.0, -steps)", "torch.pow(1000.0, -steps)")],
    "rotation": [
        (
            "real, imaginary = part[..., : ROTARY // 2], part[..., ROTARY // 2 :]",
            "real, imaginary = part[..., 0::2], part[..., 1::2]",
        ),
        (
            "torch.cat((a, b, rest), -1)",
            "torch.cat((torch.stack((a, b), -1).flatten(-2), rest), -1)",
        ),
    ],
    "partial": [("ROTARY = 33, 32, 4, 8, 4", "ROTARY = 33, 32, 4, 8, 8")],
    "shared": [("self.mlp(self.ln2(x))", "self.mlp(self.ln1(x))")],
}
