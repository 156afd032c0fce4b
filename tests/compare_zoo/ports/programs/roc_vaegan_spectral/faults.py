# SPDX-License-Identifier: Apache-2.0
"""Mistakes of folding a VAE-GAN into one loop."""

FAULTS = {
    "fake_detach": [("judge(crit, power, fake.detach())", "judge(crit, power, fake)")],
    "one_sided": [("bce(on_fake, 0.0)", "bce(on_fake, 0.1)")],
    "half_logvar": [("(logvar / 2).exp()", "logvar.exp()")],
    "kl_sum": [("(mu.square() + logvar.exp() - logvar - 1).sum(1).mean()", "(mu.square() + logvar.exp() - logvar - 1).mean()")],
    "power_state": [("        power[name] = v  # <- power_state\n", "")],
}
