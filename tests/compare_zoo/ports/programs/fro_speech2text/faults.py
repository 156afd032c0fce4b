# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "start": [("decoder_start_token_id=2", "decoder_start_token_id=0")],
    "lengths": [("there.long()", "torch.ones_like(there).long()")],
    "norms": [
        ('"norm2": "encoder_attn_layer_norm"', '"norm3": "encoder_attn_layer_norm"'),
        ('"norm3": "final_layer_norm"', '"norm2": "final_layer_norm"'),
    ],
    "untied": [("tie_word_embeddings=False", "tie_word_embeddings=True")],
    "smoothing": [("label_smoothing=0.1 * 30 / 29", "label_smoothing=0.1")],
}
