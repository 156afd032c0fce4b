# SPDX-License-Identifier: Apache-2.0
"""Faults of the tiled segmentation."""
FAULTS = {
    "leak": [("torch.max(x, 0.01 * x)", "torch.max(x, 0.1 * x)")],
    "gauss": [("sigma = TILE / 8.0", "sigma = TILE / 4.0")],
    "mirror": [("flipped.flip(3)", "flipped.flip(2)")],
    "coverage": [("weight.reshape(1, -1, 1).expand(1, -1, n)",
                  "torch.ones(1, TILE * TILE, n)")],
    "background": [("for c in range(1, K):", "for c in range(K):")],
}
