# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "cosine": [("u = u / u.norm(dim=1, keepdim=True)", "u = u / u.norm(dim=0, keepdim=True)")],
    "ramp": [
        (
            "(1 - tau) * (cos(pi * step / last) + 1) / 2",
            "(1 - tau * (cos(pi * step / last) + 1) / 2)",
        )
    ],
    "predictor": [
        (
            "distance(qa, tb).mean() + distance(qb, ta).mean()",
            "distance(qa, ta).mean() + distance(qb, tb).mean()",
        )
    ],
    "groups": [
        ('if name.endswith("weight") and not name.startswith("bn"):', 'if name.endswith("weight"):')
    ],
    "stale": [
        (
            "slow.lerp_(student[name], pull_in)",
            'slow.lerp_(student[name], pull_in if name.startswith("c") else 0.0)',
        )
    ],
}
