# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "depth": [("num_hidden_layers=4", "num_hidden_layers=2")],
    "segments": [("token_type_ids[:, 5:] = 1", "token_type_ids[:, 6:] = 1")],
    "dense": [("array.flatten(0, 1).t()", "array.flatten(0, 1)")],
    "decay": [(', "layer_norm.weight")', ")")],
    "everywhere": [
        ("torch.where(chosen, input_ids, -100)", "input_ids.masked_fill(~attention_mask, -100)")
    ],
}
