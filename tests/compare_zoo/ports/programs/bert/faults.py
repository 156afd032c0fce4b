# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "padding": [("allowed = ~padding", "allowed = padding")],
    "offset": [
        (
            "self.tokens(tokens) + self.positions  #",
            "self.tokens(tokens) + self.positions.roll(-2, 0)  #",
        )
    ],
    "types": [("model(ids, segments)", "model(ids, torch.zeros_like(segments))")],
    "pre_norm": [
        ("self.norm1(x + self.attn(x, padding))", "x + self.attn(self.norm1(x), padding)")
    ],
    "gelu": [("self.act = nn.GELU()", 'self.act = nn.GELU(approximate="tanh")')],
    "bias": [
        ("self.linear2(hidden)", "nn.functional.linear(hidden, self.linear2.weight)"),
        ("model.zero_grad()", "optimizer.zero_grad()"),
    ],
    "ignored": [
        ("scores[chosen], labels[chosen]", "scores.flatten(0, 1), labels.clamp(min=0).flatten()")
    ],
    "decay": [('group["weight_decay"] = 0.1', 'group["weight_decay"] = 0.0')],
}
