# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "repeat": [
        (
            "q.reshape(b, s, KV, HEADS // KV, HEAD)",
            "q.reshape(b, s, HEADS // KV, KV, HEAD).transpose(2, 3)",
        ),
        ("self.wo(mixed.reshape", "self.wo(mixed.transpose(2, 3).reshape"),
    ],
    "swapped": [("q, k, v = self.wqkv", "q, v, k = self.wqkv")],
    "scale": [("HEAD**-0.5", "DIM**-0.5")],
    "mask": [(".tril()", ".tril(1)")],
    "eps": [("eps=1e-6", "eps=1e-2")],
    "halves": [("gate, up = self.w13", "up, gate = self.w13")],
    "activation": [("F.silu(gate)", "F.gelu(gate)")],
    "offset": [("(DIM,), self.gain,", "(DIM,), 1 + self.gain,")],
}
