# SPDX-License-Identifier: Apache-2.0
"""Mistakes people make when they port one-hot expert dispatch to sorting, gathering and scattering."""

FAULTS = {
    # the router gets no gradient through the chosen probability
    "gate_detached": [("plan.chance[rows, None]", "plan.chance.detach()[rows, None]")],
    # capacity by plain integer division
    "capacity_rounded_down": [("room = -(-len(x) // hp.experts)", "room = len(x) // hp.experts")],
    # the balance loss counts only the tokens that found room
    "balance_after_drop": [("load = counts / len(x)", "load = counts.clamp(max=room) / len(x)")],
    # the router z-loss without its square
    "z_loss_not_squared": [("scores.logsumexp(-1).pow(2).mean()", "scores.logsumexp(-1).mean()")],
    # Adam without correction of the zero start
    "bias_correction_missing": [("self.hp.lr * (1 - b**self.n) ** 0.5 / (1 - a**self.n)", "self.hp.lr")],
}
