# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "reset_gate": [("n = torch.tanh(xn + r * hn)", "n = torch.tanh(r * xn + hn)")],
    "repeats": [("s in (0, extended[k - 2])", "s == 0")],
    "per_label": [("(alpha[-2:], 0) / len(wanted)", "(alpha[-2:], 0)")],
    "biased_std": [("voiced.std(0)", "voiced.std(0, correction=0)")],
    "nesterov": [("lr * (g + 0.9 * v)", "lr * v")],
    "one_cycle": [("0.4 * TOTAL_STEPS - 1", "0.4 * TOTAL_STEPS")],
}
