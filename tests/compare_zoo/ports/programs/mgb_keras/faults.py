# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of keras."""

FAULTS = {
    "bn_eps": [("epsilon=1e-3):", "epsilon=1e-5):")],
    "avg_border": [(".sum((-1, -2)) / count", ".sum((-1, -2)) / (k * k)")],
    "flatten_order": [("dense.permute(2, 3, 1, 0).reshape", "dense.permute(1, 2, 3, 0).reshape")],
    "kernel_penalty": [('k.endswith("kernel")]', 'k.endswith("/kernel")]')],
    "rho": [("rho=0.9, momentum=0.5", "rho=0.99, momentum=0.5")],
}
