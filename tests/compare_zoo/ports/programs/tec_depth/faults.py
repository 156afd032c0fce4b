# SPDX-License-Identifier: Apache-2.0
"""Faults for the depth pair."""

FAULTS = {
    "edge_padding": [
        (
            "torch.cat([x[..., 1:2], x, x[..., -2:-1]], -1)",
            "torch.cat([x[..., :1], x, x[..., -1:]], -1)",
        )
    ],
    "variance_focus": [("(1 - CFG.focus) * mean**2", "CFG.focus * mean ** 2")],
    "disparity_mean": [("disp.mean((1, 2), keepdim=True)", "disp.mean()")],
    "nesterov": [("ahead = grad + CFG.mu * velocity[i]", "ahead = velocity[i]")],
    "poly_power": [
        ("(1 - step / CFG.horizon) ** CFG.power", "(1 - step / CFG.steps) ** CFG.power")
    ],
}
