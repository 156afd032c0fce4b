# SPDX-License-Identifier: Apache-2.0
"""Mistakes of turning a DQN agent into functions."""

FAULTS = {
    "dueling_mean": [("adv - adv.mean(1, keepdim=True)", "adv - adv.mean()")],
    "nstep_done": [("(windows * powers * alive[:, :-1]).sum(1)", "(windows * powers * alive[:, 1:]).sum(1)")],
    "obs_merge": [(" + step * step * (norm.total * n / total)", "")],
    "adam_bias": [("v_hat = new_nu[k] / (1 - 0.999**count)", "v_hat = new_nu[k]")],
    "target_order": [("(1 - POLYAK) * online[k]", "(1 - POLYAK) * state.online[k]")],
}
