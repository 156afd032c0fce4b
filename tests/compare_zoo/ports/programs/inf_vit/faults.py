# SPDX-License-Identifier: Apache-2.0
"""Faults of the einsum tagger."""
FAULTS = {
    "cubic": [("def cubic(d, a=-0.75):", "def cubic(d, a=-0.5):")],
    "patches": [("kernel.permute(2, 3, 1, 0)", "kernel.permute(1, 2, 3, 0)")],
    "layerscale": [("torch.addcmul(x, y, p[\"ls1.gamma\"])", "x + y")],
    "prenorm": [("x = x + self.mlp(p, y) * p[\"ls2.gamma\"]",
                 "x = y + self.mlp(p, y) * p[\"ls2.gamma\"]")],
    "pooling": [("patch_mean = x[:, 1:].mean(1)", "patch_mean = x.mean(1)")],
}
