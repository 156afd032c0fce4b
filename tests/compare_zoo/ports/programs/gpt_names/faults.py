# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

OF = "gpt"
FAULTS = {
    "scale": [(" * (1.0 / math.sqrt(k.size(-1)))", "")],
    "mask": [
        ("torch.tril(torch.ones(LENGTH, LENGTH))", "torch.tril(torch.ones(LENGTH, LENGTH), 1)")
    ],
    "axis": [("dim=-1)", "dim=-2)")],
    "gelu": [('nn.GELU(approximate="tanh")', "nn.GELU()")],
    "eps": [("self.ln_1 = nn.LayerNorm(WIDTH)", "self.ln_1 = nn.LayerNorm(WIDTH, eps=1e-3)")],
    "post_norm": [("x + self.mixing(self.ln_1(x))", "self.ln_1(x + self.mixing(x))")],
    "mapping": [("q, k, v = self.c_attn", "k, q, v = self.c_attn")],
    "rate": [("lr=3e-3", "lr=3.06e-3")],
    "decay": [(", weight_decay=0.1", "")],
}
