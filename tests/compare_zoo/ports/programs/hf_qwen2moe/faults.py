# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "renormed": [
        (
            "        mixed = torch.zeros_like(tokens)",
            """        weights = weights / weights.sum(-1, keepdim=True)
        mixed = torch.zeros_like(tokens)""",
        )
    ],
    "coefficient": [("BALANCE * unbalance", "0.001 * unbalance")],
    "shared": [("torch.sigmoid(self.shared_gate(tokens)) * common", "common")],
    "repeat": [
        ("k.repeat_interleave(HEADS // KV_HEADS, dim=1)", "k.repeat(1, HEADS // KV_HEADS, 1, 1)"),
        ("v.repeat_interleave(HEADS // KV_HEADS, dim=1)", "v.repeat(1, HEADS // KV_HEADS, 1, 1)"),
    ],
    "theta": [("1.0 / THETA **", "1.0 / 10000.0 **")],
    "accumulated": [("(loss / 2).backward()", "loss.backward()")],
}
