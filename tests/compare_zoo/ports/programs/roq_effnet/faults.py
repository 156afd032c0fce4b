# SPDX-License-Identifier: Apache-2.0
"""Faults of the EfficientNet port."""

NEEDS = ["timm"]
FAULTS = {
    "bn_momentum": [("BN_EPS, BN_MOMENTUM = 1e-3, 0.01", "BN_EPS, BN_MOMENTUM = 1e-3, 0.1")],
    "se_activation": [('hidden = F.silu(self.conv(pooled, n + "/squeeze"))',
                       'hidden = F.relu(self.conv(pooled, n + "/squeeze"))')],
    "rms_start": [("slots[n] = (torch.ones_like(w), torch.zeros_like(w))",
                   "slots[n] = (torch.zeros_like(w), torch.zeros_like(w))")],
    "agreement_mean": [('F.mse_loss(logp.exp(), opinion, reduction="sum") / 8', "F.mse_loss(logp.exp(), opinion)")],
    "teacher_buffers": [("        follow(slow_stats, stats)  # <- teacher_buffers\n", "")],
}
