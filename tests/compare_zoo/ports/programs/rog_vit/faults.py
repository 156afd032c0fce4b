# SPDX-License-Identifier: Apache-2.0
"""Porting mistakes for the DeiT-like pair."""

FAULTS = {
    "patch_order": [("grid.permute(0, 2, 4, 1, 3, 5)", "grid.permute(0, 2, 4, 3, 5, 1)")],
    "ln_eps": [("self.norm = nn.LayerNorm(WIDTH, eps=1e-6)  # <- ln_eps", "self.norm = nn.LayerNorm(WIDTH)  # <- ln_eps")],
    "smoothing_share": [("off = amount / CLASSES", "off = amount / (CLASSES - 1)"), ("1 - amount + off)", "1 - amount)")],
    "momentum_form": [
        (".add_(p.grad + self.decay * p)", ".add_(lr * (p.grad + self.decay * p))"),
        ("p.sub_(lr * v)", "p.sub_(v)"),
    ],
    "ema_first_copy": [("keep = self.ema if self.done > 0 else 0.0", "keep = self.ema")],
}
