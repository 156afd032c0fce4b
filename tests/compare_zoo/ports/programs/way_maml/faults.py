# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "norm_eps": [("shift, eps=1e-5)", "shift, eps=1e-3)")],
    "softplus": [
        (
            '    y = soft(normed(conv(y, p["w2"], p["b2"], 0), p["g2"], p["s2"]))',
            '    y = soft(normed(conv(y, p["w2"], p["b2"], 0), p["g2"], p["s2"]), 1.0)',
        )
    ],
    "first_order": [
        ("fast[k] - rates[k] * slope[k] for", "fast[k] - rates[k] * slope[k].detach() for")
    ],
    "stale_start": [("{k: fast[k] - rates[k]", "{k: p[k] - rates[k]")],
    "last_only": [("0.3 * seen[0] + 0.7 * seen[1]", "0.7 * seen[0] + 0.3 * seen[1]")],
    "cosine": [("math.cos(math.pi * r / ROUNDS)", "math.cos(math.pi * (r + 1) / ROUNDS)")],
}
