# SPDX-License-Identifier: Apache-2.0
"""Faults for the VAE pair."""

FAULTS = {
    # transposed convolution done as a plain one with the kernel not mirrored
    "kernel_not_flipped": [
        ("kernel = kernel.flip(2, 3)", "kernel = kernel.clone()"),
    ],
    # mean over the latent dimensions instead of their sum
    "kl_mean_latent": [
        ("kl = kl_divergence(posterior, Normal(0.0, 1.0)).sum(-1)", "kl = kl_divergence(posterior, Normal(0.0, 1.0)).mean(-1)"),
    ],
    # the warm-up begins at zero, one step late
    "kl_warmup_late": [
        ("beta = min((step + 1) / 4, 1.0)", "beta = min(step / 4, 1.0)"),
    ],
    # PyTorch's momentum 0.1 taken as the share of the old statistics that is kept
    "bn_momentum": [
        ("KEEP = 0.9", "KEEP = 0.1"),
    ],
    # the average takes the weights from before the optimizer's step
    "ema_before_step": [
        ("torch.lerp(new[k], old, decay)", "torch.lerp(s.params[k], old, decay)"),
    ],
}
