# SPDX-License-Identifier: Apache-2.0
"""Faults for the RotatE pair."""

FAULTS = {
    "phase_range": [
        ("torch.pi * self.dim / (self.margin + self.spread)", "torch.pi * self.dim / self.margin")
    ],
    "inverse_turn": [("z[t] * turn.conj(), h", "z[t] * turn, h")],
    "adversarial_weight": [("with torch.no_grad():  # <- adv", "if True:  # <- adv")],
    "triple_frequency": [
        ("same_hr + same_rt + 2 * (smoothing - 1)", "same_hr + same_rt + smoothing")
    ],
    "adam_moments": [("cfg.lr / (1 - cfg.b1**t) * first[k] / denom", "cfg.lr * first[k] / denom")],
}
