# SPDX-License-Identifier: Apache-2.0
"""Faults of the GPT with separate projections."""

FAULTS = {
    "rms_eps": [("def __init__(self, dim, eps=1e-5):", "def __init__(self, dim, eps=1e-6):")],
    "gate_up_swapped": [('first, second = old[f"mlps.{i}.w13.weight"]', 'second, first = old[f"mlps.{i}.w13.weight"]')],
    "zloss_all_tokens": [("z_weight * (log_z ** 2)[valid].mean()", "z_weight * (log_z ** 2).mean()")],
    "embedding_decayed": [('for word in ("ln_", "tokens", "places"))', 'for word in ("ln_",))')],
    "clip_per_tensor": [
        ("            grad, (m, v) = p.grad * factor, self.state[name]",
         ("            factor = (self.clip / (p.grad.norm() + 1e-6)).clamp(max=1.0)\n"
         "            grad, (m, v) = p.grad * factor, self.state[name]"))],
}
