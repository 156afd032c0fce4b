# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "scaled": [("    scale_embedding=True,\n", "")],
    "offset": [("weight[2 : 2 + len(table)] = table", "weight[: len(table)] = table")],
    "mask": [("(input_ids != config.pad_token_id).long()", "torch.ones_like(input_ids)")],
    "ignored": [("padding_value=-100)", "padding_value=config.pad_token_id)")],
    "clipped": [("norm_(model.parameters(), max_norm=0.5)", "value_(model.parameters(), 0.5)")],
}
