# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of neox."""

FAULTS = {
    "rotary_table": [("arange(0, ROT, 2).float() / ROT)", "arange(0, ROT, 2).float() / HD)")],
    "parallel_residual": [('m = ln(x, p["ln2_g"]', 'm = ln(x + mix, p["ln2_g"]')],
    "gelu_form": [("u * 0.5 * (1 + torch.erf(u / 2 ** 0.5))",
                   "u * torch.sigmoid(1.702 * u)")],
    "decay_group": [('if k in ("wte", "head") or ".w" in k}', 'if ".w" in k}')],
    "warmup": [("lr = 4e-3 * min(1.0, t / 3)", "lr = 4e-3 * min(1.0, (t - 1) / 3)")],
}
