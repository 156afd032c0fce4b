# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "alpha": [
        ("-alpha * (1 - p)", "-(1 - alpha) * (1 - p)"),
        ("-(1 - alpha) * p**gamma", "-alpha * p**gamma"),
    ],
    "gamma": [("gamma=2.0", "gamma=1.0")],
    "beta": [("beta=0.5):", "beta=1.0):")],
    "normaliser": [("found.sum().clamp(min=1.0)", "float(found.numel())")],
    "layout": [
        (
            "raw.reshape(n, A, K, h, w).permute(0, 3, 4, 1, 2)",
            "raw.reshape(n, A, K, h, w).permute(0, 4, 3, 1, 2)",
        )
    ],
    "groups": [("groups=4)", "groups=3)")],
}
