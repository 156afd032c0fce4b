# SPDX-License-Identifier: Apache-2.0
"""Faults of the Llama with half-rotated keys."""

FAULTS = {
    "key_permute": [('k = half_layout(take("attention.wk"), CFG["kv_heads"])', 'k = take("attention.wk")')],
    "norm_eps": [("keepdim=True) + 1e-5))", "keepdim=True) + 1e-6))")],
    "kv_grouping": [("q = q.view(n, t, kv, group, HD)", "q = q.view(n, t, group, kv, HD).transpose(2, 3)")],
    "z_loss": [("(log_z ** 2).mean()", "log_z.mean() ** 2")],
    "decay_form": [("torch._foreach_mul_(self.params, 1 - self.lr * self.decay)",
                    "torch._foreach_add_(grads, self.params, alpha=self.decay)")],
}
