# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "eps": [
        ("self.attention_norm = nn.RMSNorm(DIM, eps=1e-5)", "self.attention_norm = nn.RMSNorm(DIM)")
    ],
    "rotary": [("b * cos + a * sin", "b * cos - a * sin")],
    "groups": [
        (
            "k = k.unsqueeze(2).expand(-1, -1, n, -1, -1).reshape(b, HEADS, t, HEAD)",
            "k = k.repeat(1, n, 1, 1)",
        ),
        (
            "v = v.unsqueeze(2).expand(-1, -1, n, -1, -1).reshape(b, HEADS, t, HEAD)",
            "v = v.repeat(1, n, 1, 1)",
        ),
    ],
    "gate": [("silu(gate) * up", "gate * silu(up)")],
    "zeroed": [
        (
            "        logits = model(micro",
            "        optimizer.zero_grad()\n        logits = model(micro",
        ),
    ],
    "clip": [
        ("clip_grad_norm_(model.parameters(), 0.5)", "clip_grad_value_(model.parameters(), 0.5)")
    ],
}
