# SPDX-License-Identifier: Apache-2.0
"""Faults of the BLOOM port."""

NEEDS = ["transformers"]
FAULTS = {
    "alibi_slopes": [("return torch.tensor(powers(whole) + powers(2 * whole)[0::2][: n - whole])",
                      "return torch.tensor(powers(n))")],
    "post_ln_residual": [("x = x + down(F.gelu(up(y)", "x = y + down(F.gelu(up(y)")],
    "token_norm": [("tokens + count", "tokens + real.sum()")],
    "clip_micro": [("for n, g in step.items():", "for n, g in clipped(step).items():"),
                   ("grads = clipped({n: g / tokens for n, g in grads.items()})",
                    "grads = {n: g / tokens for n, g in grads.items()}")],
    "nadam_lookahead": [("mu_next / (1 - product * mu_next)", "mu_next / (1 - product)")],
}
