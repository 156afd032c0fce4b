# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the toy WGAN-GP on a ring of gaussians."""

FAULTS = {
    "gen_activation": [
        ("torch.logaddexp(x, torch.zeros_like(x))",
         "torch.relu(x)"),
    ],
    "mix_swapped": [
        ("fake + eps * (real - fake)",
         "real + eps * (fake - real)"),
    ],
    "slope_detached": [
        ("(lambda x: score(phi, x)))(between)",
         "(lambda x: score(phi, x)))(between).detach()"),
    ],
    "second_beta": [
        ("0.9 * v + 0.1 * g * g",
         "0.999 * v + 0.001 * g * g"),
        ("1 - 0.9 ** t",
         "1 - 0.999 ** t"),
    ],
    "reused_latent": [
        ("theta, phi, torch.randn(12, 4, generator=rng))",
         "theta, phi, z)"),
    ],
}
