# SPDX-License-Identifier: Apache-2.0
"""Mistakes for the compiled OPT pair."""

NEEDS = ["transformers"]
FAULTS = {
    "mask_lost": [("self.fast(input_ids=tokens, attention_mask=real.long())", "self.fast(input_ids=tokens)")],
    "gelu_not_relu": [('activation_function="relu"', 'activation_function="gelu"')],
    "mean_of_means": [('reduction="sum")', 'reduction="mean")'), ("part = nll / whole", "part = nll / self.accumulate")],
    "clipped_by_value": [("torch._foreach_mul_(grads, min(1.0, 1.0 / (float(norm) + 1e-6)))", "[g.clamp_(-1.0, 1.0) for g in grads]")],
    "warmup_from_zero": [("tick = self.done + 1", "tick = self.done")],
}
