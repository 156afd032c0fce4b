# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "undivided": [("y[part]) / 2", "y[part])")],
    "forgotten": [("    for i in range(2):", "    for i in range(1, 2):")],
    "norm": [("net.parameters(), 0.5)", "net.parameters(), 0.5, norm_type=1.0)")],
    "gelu": [("F.gelu(self.a(x))", 'F.gelu(self.a(x), approximate="tanh")')],
    "eps": [("nn.LayerNorm(32)", "nn.LayerNorm(32, eps=1e-3)")],
    "decay": [
        (
            "torch.optim.AdamW(net.parameters(), lr=1e-2",
            "torch.optim.Adam(net.parameters(), lr=1e-2",
        )
    ],
}
