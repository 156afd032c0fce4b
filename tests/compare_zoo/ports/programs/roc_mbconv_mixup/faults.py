# SPDX-License-Identifier: Apache-2.0
"""Mistakes of moving an EfficientNet recipe to channels-last."""

FAULTS = {
    "same_pad": [("        x = F.pad(x, (0, 0, 1, 1, 1, 1))  # <-", "        x = F.pad(x, (0, 0, 2 - stride, stride, 2 - stride, stride))  # <-")],
    "bn_momentum": [
        ("0.9 * run_var + 0.1 * var.detach() * n / (n - 1)", "0.1 * run_var + 0.9 * var.detach() * n / (n - 1)"),
        ("0.9 * run_mean + 0.1 * mean.detach()", "0.1 * run_mean + 0.9 * mean.detach()"),
    ],
    "smooth_k": [("hot * (1 - 0.1) + 0.1 / K", "hot * (1 - 0.1) + (1 - hot) * 0.1 / (K - 1)")],
    "mixup_pair": [("target = keep * target + (1 - keep) * target[other]", "target = keep * target[other] + (1 - keep) * target")],
    "rms_start": [("mean_square = {k: torch.ones_like(v)", "mean_square = {k: torch.zeros_like(v)")],
}
