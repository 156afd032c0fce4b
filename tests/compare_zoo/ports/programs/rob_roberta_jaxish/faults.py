# SPDX-License-Identifier: Apache-2.0
"""Faults of the functional tagger."""

NEEDS = ["transformers"]
FAULTS = {
    "position_start": [
        ("torch.where(real, real.long().cumsum(1) + PAD, PAD)", "torch.arange(ids.shape[1]).expand_as(ids)"),
    ],
    "gelu_tanh": [
        (
            "0.5 * x * (1 + torch.erf(x * 2 ** -0.5))",
            "0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x ** 3)))",
        ),
    ],
    "smooth_ignored": [("(per_token * counted).sum() / counted.sum()", "(per_token * counted).mean()")],
    "clip_each": [
        (
            "    total = torch.stack([g.norm() for g in grads.values()]).norm()  # <- clip_each\n",
            "",
        ),
        ("torch.clamp(limit / (total + 1e-6), max=1.0)", "torch.clamp(limit / (g.norm() + 1e-6), max=1.0)"),
    ],
    "velocity_has_rate": [
        ("0.9 * trace[k] + grads[k]", "0.9 * trace[k] + rate * grads[k]"),
        ("(params[k] - rate * trace[k])", "(params[k] - trace[k])"),
    ],
}
