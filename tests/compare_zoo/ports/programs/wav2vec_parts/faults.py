# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

OF = "wav2vec"
FAULTS = {
    "group_norm": [("nn.GroupNorm(CHANNELS, CHANNELS)", "nn.GroupNorm(1, CHANNELS)")],
    "weight_norm": [("norm(dim=(0, 1)", "norm(dim=(1, 2)")],
    "same_pad": [("y[:, :, :-1]", "y[:, :, 1:]")],
    "masking": [("masked[..., None], self", "~masked[..., None], self")],
    "temperature": [("+ noise) / 0.5", "+ noise) / 2.0")],
    "cosine": [("candidates.norm(dim=-1)", "1.0")],
    "ctc": [('reduction="mean"', 'reduction="sum"')],
}
