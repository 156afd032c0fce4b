# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "terminal": [("alive = 1 - self.done[:, 1:]", "alive = 1 - self.done[:, :-1]")],
    "discount": [("weight * gamma * lam * alive", "weight * gamma * alive")],
    "observed": [("(variance + 1e-8).sqrt()", "(variance + 1e-8)")],
    "standardised": [
        ("(advantage.square().sum() / (len(advantage) - 1))", "advantage.square().mean()")
    ],
    "surrogate": [("torch.minimum((taken", "torch.maximum((taken")],
    "pessimistic": [("errors.amax(0).mean() / 2", "errors.amin(0).mean() / 2")],
    "entropy": [("error - gain - 0.01 * spread", "error - gain + 0.01 * spread")],
    "clip": [
        ("square().sum() for g in gradients]).sum().sqrt()", "norm() for g in gradients]).max()")
    ],
}
