# SPDX-License-Identifier: Apache-2.0
"""Mistakes that can be put into the port."""

NEEDS = ["lightning"]
FAULTS = {
    "power_vectors_lost": [("n.u, n.v = u, v", "n.u, n.v = n.u, n.v")],
    "adam_uncorrected": [("fix1, fix2 = 1 - b1**self.t, 1 - b2**self.t", "fix1, fix2 = 1.0, 1.0")],
    "fake_attached": [
        ("fake = decode(vae, mean + noise * (logvar / 2).exp()).detach()",
         "fake = decode(vae, mean + noise * (logvar / 2).exp())"),
    ],
    "kl_mean": [("- logvar - 1).sum() / len(x)", "- logvar - 1).mean()")],
    "l1_summed": [("pixel = (fake - x).abs().mean()", "pixel = (fake - x).abs().sum(1).mean()")],
}
