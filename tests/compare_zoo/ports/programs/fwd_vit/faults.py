# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of vit."""

FAULTS = {
    "patch_order": [(".permute(2, 3, 1, 0)", ".permute(1, 2, 3, 0)")],
    "scale": [("q / math.sqrt(q.shape[-1])", "q / math.sqrt(x.shape[-1])")],
    "pos_embed": [('x + tree["pos"]', 'x + tree["pos"].roll(-1, 0)')],
    "second_residual": [('x = x + mlp(y, *p["mlp"])', 'x = y + mlp(y, *p["mlp"])')],
    "normalise": [("[0.229, 0.224, 0.225]", "[0.5, 0.5, 0.5]")],
}
