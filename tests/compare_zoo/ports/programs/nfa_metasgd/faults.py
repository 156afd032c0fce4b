# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the meta-learner with learnt inner rates."""

FAULTS = {
    "detached": [
        ("p - a * d for",
         "p - a * d.detach() for"),
    ],
    "decay_early": [
        ("0.8 ** it",
         "0.8 ** (it + 1)"),
    ],
    "clip_side": [
        ("g.clamp(-0.5, 0.5)",
         "g.clamp(max=0.5)"),
    ],
    "few": [
        ("in range(steps):",
         "in range(1, steps):"),
    ],
    "wide": [
        ("(net(theta, x) - y)",
         "(net(theta, x)[:, None] - y)"),
    ],
}
