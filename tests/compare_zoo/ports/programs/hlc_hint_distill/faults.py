# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the online distillation."""

FAULTS = {
    "temperature": [("* temp ** 2", "* temp")],
    "preact": [("- leaky(t[i + 1])", "- t[i + 1]")],
    "detach": [("t = [a.detach() for a in t]", "t = list(t)")],
    "dampening": [("0.9 * (v + u) for v", "0.9 * v + u for v")],
    "accumulator": [("torch.full_like(m, 1e-3)", "torch.zeros_like(m)")],
}
