# SPDX-License-Identifier: Apache-2.0
"""Mistakes that can be put into the port."""

NEEDS = ["lightning"]
FAULTS = {
    "running_var_biased": [("(var * n / (n - 1) - stat[1])", "(var - stat[1])")],
    "gelu_tanh": [
        ("0.5 * x * (1 + torch.erf(x / math.sqrt(2)))",
         "0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))"),
    ],
    "smoothing_others": [
        ("torch.full_like(logp, eps / K)", "torch.full_like(logp, eps / (K - 1))"),
        ("y[:, None], 1 - eps + eps / K)", "y[:, None], 1 - eps)"),
    ],
    "schedule_ahead": [("lr = rate(step)", "lr = rate(step + 1)")],
    "clip_each": [
        ("norm = torch.sqrt(sum(g.pow(2).sum() for g in grads.values()))",
         "norm = {k: g.pow(2).sum().sqrt() for k, g in grads.items()}"),
        ("scale = (limit / (norm + 1e-6)).clamp(max=1.0)",
         "scale = {k: (limit / (n + 1e-6)).clamp(max=1.0) for k, n in norm.items()}"),
        ("{k: g * scale for k, g in grads.items()}", "{k: g * scale[k] for k, g in grads.items()}"),
    ],
}
