# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "mindspore"
FAULTS = {
    "gelu": [("nn.GELU(approximate=False)", "nn.GELU()")],
    "norm_eps": [
        ("self.norm = nn.LayerNorm((HIDDEN,), epsilon=1e-5)", "self.norm = nn.LayerNorm((HIDDEN,))")
    ],
    "mask": [
        (
            "(1.0 - attention_mask.expand_dims(1).expand_dims(1)) * -10000.0",
            "attention_mask.expand_dims(1).expand_dims(1)",
        )
    ],
    "adam": [("nn.AdamWeightDecay(groups,", "nn.Adam(groups,")],
    "types": [
        (
            'if "_embeddings." in name:',
            'if "d_embeddings." in name or "position_embeddings." in name:',
        )
    ],
}
