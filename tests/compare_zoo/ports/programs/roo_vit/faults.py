# SPDX-License-Identifier: Apache-2.0
"""Faults for the vision transformer pair."""

FAULTS = {
    # PyTorch's default eps instead of timm's 1e-6
    "norm_eps": [
        ("EPS = 1e-6", "EPS = 1e-5"),
    ],
    # convolution kernel flattened as (c, p, p) while the patches are (p, p, c)
    "patch_order": [
        ('kernel = sd["patch_embed.proj.weight"].permute(2, 3, 1, 0)', 'kernel = sd["patch_embed.proj.weight"].permute(1, 2, 3, 0)'),
    ],
    # labels mixed with the flipped batch (timm's way), images with the permuted one
    "mixup_partner": [
        ("-logp[rows, labels[partner]]", "-logp[rows, labels.flip(0)]"),
    ],
    "layer_decay_shifted": [
        ("per_block = d ** (DEPTH - torch.arange(DEPTH))", "per_block = d ** (DEPTH - 1 - torch.arange(DEPTH))"),
    ],
    # the stacked biases and gains have two dimensions and are decayed
    "decay_on_stacked": [
        ('return p.ndim - name.startswith("blocks/") > 1', "return p.ndim > 1"),
    ],
}
