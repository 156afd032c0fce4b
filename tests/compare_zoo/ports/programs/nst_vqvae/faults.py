# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of vqvae."""

FAULTS = {
    "straight_through": [("return grad.clone(), None", "return torch.zeros_like(grad), None")],
    "laplace": [("mass * (count + EPS) / (mass + 10 * EPS)", "count + EPS")],
    "ema_rate": [('torch.lerp(sums, book["sums"], RHO)', 'torch.lerp(book["sums"], sums, RHO)')],
    "commitment": [("(z - code.detach()).square().mean()", "(z.detach() - code).square().mean()")],
    "variance_scale": [("(y - x).square().mean() / VAR", "(y - x).square().mean() / VAR ** 0.5")],
}
