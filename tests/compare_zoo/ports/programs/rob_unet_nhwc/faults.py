# SPDX-License-Identifier: Apache-2.0
"""Faults of the channels-last diffusion step."""

FAULTS = {
    "freq_spacing": [("(torch.arange(half) / (half - 1))", "(torch.arange(half) / half)")],
    "group_layout": [
        ("split = x.view(b, h * w, GROUPS, c // GROUPS)", "split = x.view(b, h * w, c // GROUPS, GROUPS)"),
        ("mean = split.mean((1, 3), keepdim=True)", "mean = split.mean((1, 2), keepdim=True)"),
        ("(split - mean).square().mean((1, 3), keepdim=True)", "(split - mean).square().mean((1, 2), keepdim=True)"),
    ],
    "alpha_index": [("signal = table[t][", "signal = table[(t - 1).clamp(min=0)][")],
    "snr_weight": [("torch.minimum(5.0 / snr, torch.ones(()))", "torch.clamp(snr, max=5.0)")],
    "ema_warmup": [("rate = min(0.95, (1 + count) / (4 + count))", "rate = 0.95")],
}
