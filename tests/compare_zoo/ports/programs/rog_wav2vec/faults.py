# SPDX-License-Identifier: Apache-2.0
"""Porting mistakes for the wav2vec-like pair."""

FAULTS = {
    "gn_unbiased": [("dim=(1, 3), keepdim=True, correction=0)", "dim=(1, 3), keepdim=True)")],
    "grad_mult": [("lambda grad: grad * 0.1", "lambda grad: grad * 1.0")],
    "pos_conv_trim": [("F.pad(x.mT, (3, 2))", "F.pad(x.mT, (2, 3))")],
    "mask_missing": [('x = x * (1 - hidden) + w["mask_emb"] * hidden', 'x = x * (1 - hidden)')],
    "beta2": [("betas=(0.9, 0.98)", "betas=(0.9, 0.999)")],
}
