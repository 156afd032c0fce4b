# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "scale": [("    scale_embedding=True,", "    scale_embedding=False,")],
    "start": [("    decoder_start_token_id=PAD,", "    decoder_start_token_id=EOS,")],
    "cross_kv": [("q, k, v = tensor.chunk(3)", "q, v, k = tensor.chunk(3)")],
    "smoothing": [
        ("logp.sum(-1, keepdim=True).masked_fill(ignored, 0.0)", "logp.sum(-1, keepdim=True)")
    ],
    "betas": [("lr=PEAK, betas=(0.9, 0.98), eps", "lr=PEAK, eps")],
}
