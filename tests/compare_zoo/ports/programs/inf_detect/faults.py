# SPDX-License-Identifier: Apache-2.0
"""Faults of the edge detector."""
FAULTS = {
    "whiten": [("- MU / SD", "- MU")],
    "padside": [("pad(x, [0, 1, 0, 1])", "pad(x, [1, 0, 1, 0])")],
    "centre": [("((mid + 0.5) * CELL)", "(mid * CELL)")],
    "variance": [("delta[..., 0:2].mul(0.1)", "delta[..., 0:2].mul(0.2)"),
                 ("delta[..., 2:4].mul(0.2)", "delta[..., 2:4].mul(0.1)")],
    "classwise": [("moved = boxes + kinds[:, None] * (2.0 * SIDE)", "moved = boxes + 2.0 * SIDE")],
}
