# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "padding": [("key_padding_mask=ignored, ", "")],
    "segments": [("self.positions + self.segments(segments)", "self.positions")],
    "pooled": [("first = x[:, 0]", "first = x.mean(1)")],
    "classes": [("/ weights.sum()", "/ len(weights)")],
    "decay": [
        ("if p.dim() > 1]", "if p.dim() <= 1]"),
        (
            "plain = [p for p in net.parameters() if p.dim() <= 1]",
            "plain = [p for p in net.parameters() if p.dim() > 1]",
        ),
    ],
    "warmup": [("learning_rate(step)  #", "learning_rate(max(step - 1, 0))  #")],
}
