# SPDX-License-Identifier: Apache-2.0
"""Mistakes for the ResNet pair."""

NEEDS = ["transformers"]
FAULTS = {
    "variance_biased": [("self.rate * var * n / (n - 1)", "self.rate * var")],
    "momentum_swapped": [
        ("self.mu.mul_(1 - self.rate).add_(self.rate * mu)", "self.mu.mul_(self.rate).add_((1 - self.rate) * mu)"),
        ("self.var.mul_(1 - self.rate).add_(self.rate * var * n / (n - 1))", "self.var.mul_(self.rate).add_((1 - self.rate) * var * n / (n - 1))"),
    ],
    "no_std": [("x = (x - mean) / std  # <-", "x = x - mean  # <-")],
    "decay_everywhere": [("(p, 0.05 if p.ndim > 1 else 0.0)", "(p, 0.05)")],
    "cosine_early": [("math.cos(math.pi * step / 5)", "math.cos(math.pi * (step + 1) / 5)")],
}
