# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "offset": [
        (
            "model(**batch)",
            "model(**batch, position_ids=attention_mask.cumsum(1) * attention_mask + 1)",
        )
    ],
    "heads": [
        ("tensor.unflatten(0, (HEADS, 3, -1)).unbind(1)", "tensor.chunk(3)"),
        ("[part.flatten(0, 1) for part in parts]", "parts"),
    ],
    "mask": [('"attention_mask": attention_mask, ', "")],
    "normed": [('old[f"layers.{n}.{norm}', 'old[f"layers.0.{norm}')],
    "rates": [("(LAYERS - int(layer[1]))", "(LAYERS - 1 - int(layer[1]))")],
    "frozen": [
        ("model.get_input_embeddings().requires_grad_(False)", "model.get_input_embeddings()")
    ],
}
