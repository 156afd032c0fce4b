# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "slopes": [("(slopes[1::2] + slopes[::2])[:heads]", "slopes[:heads]")],
    "clipped": [("[part.clamp(-CLIP, CLIP) for part in parts]", "list(parts)")],
    "scale": [("attn_mask=bias, scale=SCALE", "attn_mask=bias")],
    "decoupled": [("torch.optim.AdamW(", "torch.optim.Adam(")],
    "token_mean": [("loss * count / sum(counts)", "loss / len(counts)")],
}
