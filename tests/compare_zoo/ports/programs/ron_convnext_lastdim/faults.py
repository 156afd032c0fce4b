# SPDX-License-Identifier: Apache-2.0
"""Five faults of the channels-last ConvNeXt port."""

NEEDS = ["timm"]
FAULTS = {
    "gelu": [("F.gelu(self.wide(self.norm(h)))", 'F.gelu(self.wide(self.norm(h)), approximate="tanh")')],
    "norm_pool": [("self.head(self.norm(x.mean((1, 2))))", "self.head(self.norm(x).mean((1, 2)))")],
    "agc_axis": [("t.norm(dim=0, keepdim=True)", "t.norm(dim=1, keepdim=True)")],
    "nesterov": [("lr * (g + 0.9 * velocity[n])", "lr * velocity[n]")],
    "ema_order": [
        ("            old.mul_(0.7).add_(p, alpha=0.3)  # <- ema_order\n", ""),
        ("            g = clip(n, p, p.grad)", "            old.mul_(0.7).add_(p, alpha=0.3)  # <- ema_order\n            g = clip(n, p, p.grad)"),
    ],
}
