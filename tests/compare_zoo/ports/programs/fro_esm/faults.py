# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "token_dropout": [("token_dropout=True", "token_dropout=False")],
    "last_norm": [('state[f"esm.encoder.{after}"]', 'state[f"esm.{after}"]')],
    "padding": [("tokens.ne(config.pad_token_id).long()", "torch.ones_like(tokens)")],
    "by_protein": [("(each.sum(1) / chosen.sum(1)).mean()", "each.sum() / chosen.sum()")],
    "nesterov": [(", nesterov=True", "")],
}
