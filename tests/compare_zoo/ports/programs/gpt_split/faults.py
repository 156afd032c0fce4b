# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

OF = "gpt"
FAULTS = {
    "scale": [(" * (1.0 / math.sqrt(k.size(-1)))", "")],
    "mask": [
        ("torch.tril(torch.ones(LENGTH, LENGTH))", "torch.tril(torch.ones(LENGTH, LENGTH), 1)")
    ],
    "axis": [("dim=-1)", "dim=-2)")],
    "gelu": [("0.044715", "0.04715")],
    "eps": [
        (
            "self.before_attention = nn.LayerNorm(WIDTH)",
            "self.before_attention = nn.LayerNorm(WIDTH, eps=1e-3)",
        )
    ],
    "mapping": [('zip("qkv"', 'zip("kqv"')],
    "rate": [("lr=3e-3", "lr=3.06e-3")],
}
