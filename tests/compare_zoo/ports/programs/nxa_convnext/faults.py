# SPDX-License-Identifier: Apache-2.0
"""Faults of the ConvNeXt in NHWC functions."""

FAULTS = {
    "grn_mean": [("energy.mean(dim=3, keepdim=True)", "energy.mean(dim=(1, 2), keepdim=True)")],
    "kernel_axes": [("* kernel[i, j]", "* kernel[j, i]")],
    "pool_order": [("layer_norm(x.mean(dim=(1, 2)), p[\"ln_w\"], p[\"ln_b\"])",
                    "layer_norm(x, p[\"ln_w\"], p[\"ln_b\"]).mean(dim=(1, 2))")],
    "nesterov": [("p.sub_(rate * (g + mu * s))", "p.sub_(rate * s)")],
    "ema_warmup": [("keep = min(0.95, (2 + t) / (11 + t))", "keep = 0.95")],
}
