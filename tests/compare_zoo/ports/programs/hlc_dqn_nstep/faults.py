# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the n-step Q-learner."""

FAULTS = {
    "reach": [("(rw * reach * gamma", "(rw * surv * gamma")],
    "duel": [("adv.mean(-1, keepdim=True)", "adv.amax(-1, keepdim=True)")],
    "boot_index": [("obs[pick + horizon]", "obs[pick + horizon - 1]")],
    "sync": [("if it % 2 == 1:", "if it % 2 == 0:")],
    "rms_decay": [("torch.lerp(avg[k], gr * gr, 0.1)", "torch.lerp(avg[k], gr * gr, 0.01)")],
}
