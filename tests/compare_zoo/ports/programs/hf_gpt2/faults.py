# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "scale": [(" / (WIDTH // HEADS) ** 0.5", "")],
    "mask": [("triu(1)", "triu(2)")],
    "gelu": [(', approximate="tanh"', "")],
    "eps": [
        (
            "self.ln1, self.ln2 = nn.LayerNorm(WIDTH, eps=1e-5)",
            "self.ln1, self.ln2 = nn.LayerNorm(WIDTH, eps=1e-3)",
        )
    ],
    "transposed": [
        ("value.t() if turned", "(value if 'attn.c_proj' in name else value.t()) if turned")
    ],
    "order": [("q, k, v = self.qkv", "k, q, v = self.qkv")],
    "rate": [("lr=1e-3", "lr=1.02e-3")],
}
