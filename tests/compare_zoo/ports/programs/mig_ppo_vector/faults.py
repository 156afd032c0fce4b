# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    # the value after the last step counts as nothing
    "bootstrap": [
        ("following = value[1:]", "following = torch.cat((value[1:-1], torch.zeros(1, N)))")
    ],
    # what comes after an end is counted in the sum, though not in the error
    "ended": [("GAMMA * LAM * alive[t : T - 1]", "GAMMA * LAM * torch.ones(T - 1 - t, N)")],
    # the deviation without Bessel's correction, as numpy has it
    "whitened": [("torch.std_mean(advantage)", "torch.std_mean(advantage, correction=0)")],
    # clipped always, not only where it is the smaller
    "pessimist": [
        (
            "torch.minimum((now - before).exp() * advantage, bound)",
            "((now - before).exp().clamp(1 - EPSILON, 1 + EPSILON) * advantage)",
        )
    ],
    # the sign of the entropy
    "entropy": [("- gain + 0.05 * surprise", "- gain - 0.05 * surprise")],
}
