# SPDX-License-Identifier: Apache-2.0
"""Mistakes that can be put into the port."""

NEEDS = ["accelerate"]
FAULTS = {
    "norm_eps": [("EPS = 1e-6", "EPS = 1e-5")],
    "trust_grad": [("gap.detach().abs().neg().exp()", "gap.abs().neg().exp()")],
    "huber_delta": [
        ("0.5 * a * a, delta * (a - 0.5 * delta)", "0.5 * a * a / delta, a - 0.5 * delta"),
    ],
    "l2_decoupled": [
        ("g = g + self.l2 * w", "w = w - lr * self.l2 * w"),
    ],
    "ema_ramp": [("keep = min(0.9, (1 + update) / (10 + update))", "keep = 0.9")],
}
