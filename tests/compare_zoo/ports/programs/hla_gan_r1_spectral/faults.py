# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the GAN on a ring."""

FAULTS = {
    "penalty_half": [
        ("/ (2 * len(real))", "/ len(real)"),
    ],
    "power_skipped": [
        ("u_fake, v = power_step(D.w, v)", "u_fake = u_real"),
    ],
    "leak_slope": [
        ("0.6 * h + 0.4 * h.abs()", "0.505 * h + 0.495 * h.abs()"),
    ],
    "second_moment": [
        ("torch.sqrt(s / corr)", "torch.sqrt(s)"),
    ],
    "stale_critic": [
        ("    D = adam_d.update(", "    D_next = adam_d.update("),
        ("    G = adam_g.update(G, torch.autograd.grad(loss_g, G))",
         "    G = adam_g.update(G, torch.autograd.grad(loss_g, G))\n    D = D_next"),
    ],
}
