# SPDX-License-Identifier: Apache-2.0
"""Faults of the PPO port."""

FAULTS = {
    # dones[t] says that obs[t] begins an episode; read as "ends after step t"
    "done_of_same_step": [("alive = 1.0 - first[1:]", "alive = 1.0 - first[:-1]")],
    # numpy's and jax's std
    "population_std": [("centred.square().sum().div(len(centred) - 1).sqrt()", "centred.square().mean().sqrt()")],
    "entropy_per_dim": [("(0.5 + 0.5 * math.log(2 * math.pi) + log_sigma).sum()", "(0.5 + 0.5 * math.log(2 * math.pi) + log_sigma).mean()")],
    # each network clipped by its own norm
    "clip_apart": [
        ("        rescale([p for n in self.nets for p in n.parameters()], HYPER[\"clip\"])  # <- clip_apart",
         "        [rescale(list(n.parameters()), HYPER[\"clip\"]) for n in self.nets]  # <- clip_apart"),
    ],
    # the schedule stands one round ahead
    "anneal_early": [("return 1.0 - k / HYPER", "return 1.0 - (k + 1) / HYPER")],
}
