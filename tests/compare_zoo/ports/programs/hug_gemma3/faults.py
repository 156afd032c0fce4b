# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "scalar": [("    query_pre_attn_scalar=12,\n", "    query_pre_attn_scalar=8,\n")],
    "window": [("    sliding_window=4,\n", "    sliding_window=5,\n")],
    "padding": [("    pad_token_id=None,\n", "")],
    "gates": [("gate, up = checkpoint", "up, gate = checkpoint")],
    "accumulated": [("scaled = output.loss / 2", "scaled = output.loss")],
}
