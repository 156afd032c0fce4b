# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the free-bits VAE."""

FAULTS = {
    "free_bits": [
        (".sum(0) / len(x)",
         ""),
        ("torch.relu(kl_dim - lam).sum()",
         "torch.relu(kl_dim - lam).mean(0).sum()"),
    ],
    "silu": [("(pre * pre.sigmoid())", "torch.nn.functional.gelu(pre)")],
    "sigma": [("(lv / 2).exp()", "lv.exp()")],
    "warmup": [("min(t / 4, 1.0)", "min((t - 1) / 4, 1.0)")],
    "bias_correction": [("lr * root / (1 - b1 ** t) * mom", "lr * root * mom")],
}
