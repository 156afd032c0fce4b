# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of lstm."""

FAULTS = {
    "gates": [("i, f, g, o = t.split(HIDDEN)", "i, f, o, g = t.split(HIDDEN)")],
    "biases": [(' + sd[f"lstm.bias_hh_{end}"]', "")],
    "reverse": [("h, c = torch.where(on, h_new, h), torch.where(on, c_new, c)",
                 "h, c = h_new, c_new")],
    "pool_mask": [("torch.exp(s - s.amax(0)) * live", "torch.exp(s - s.amax(0))")],
    "energy": [("(torch.tanh(e) * ", "(torch.relu(e) * ")],
}
