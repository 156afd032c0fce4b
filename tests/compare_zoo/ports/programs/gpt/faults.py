# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "scale": [(" / HEAD_DIM**0.5", "")],
    "mask": [("diagonal=1", "diagonal=2")],
    "axis": [("scores.amax(-1", "scores.amax(-2"), ("weights.sum(-1", "weights.sum(-2")],
    "gelu": [
        ("inner = 0.7978845608 * (x + 0.044715 * x * x * x)", "inner = x * 0.7071067812"),
        ("torch.tanh(inner)", "torch.erf(inner)"),
    ],
    "post_norm": [
        ("x + self.attention(self.norm_a(x))", "self.norm_a(x + self.attention(x))"),
        ("x + self.feed_forward(self.norm_b(x))", "self.norm_b(x + self.feed_forward(x))"),
    ],
    "eps": [("eps=1e-5", "eps=1e-3")],
    "mapping": [("q, k, v = old", "k, q, v = old")],
    "rate": [("lr=3e-3", "lr=3.06e-3")],
    "decay": [
        ("            p.mul_(1 - self.lr * self.decay)", "            p.mul_(1 - self.decay)")
    ],
}
