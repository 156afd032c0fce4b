# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "partial": [("    partial_rotary_factor=0.25,\n", "")],
    "tiled": [
        (
            "[head for group in range(GROUPS) for head in range(group, HEADS, GROUPS)]",
            "list(range(HEADS))",
        )
    ],
    "halves": [("torch.cat((gate, value))", "torch.cat((value, gate))")],
    "prompt": [("row[:asked] = -100", "row[: asked - 1] = -100")],
    "cosine": [("num_training_steps=5)", "num_training_steps=len(rows))")],
}
