# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "squash": [("factor = energy / (1 + energy)", "factor = energy.sqrt() / (1 + energy)")],
    "coupling": [("agreement.softmax(dim=1)", "agreement.softmax(dim=2)")],
    "rounds": [("Routing(rounds=3)", "Routing(rounds=2)")],
    "grouped": [
        (
            "unflatten(1, (LOW, GROUPS)).permute(0, 2, 3, 4, 1)",
            "unflatten(1, (GROUPS, LOW)).permute(0, 1, 3, 4, 2)",
        )
    ],
    "squares": [("(0.9 - right).clamp(min=0) ** 2", "(0.9 - right).clamp(min=0)")],
    "absent": [("0.5 * wrong.sum(1)", "wrong.sum(1)")],
    "pixels": [("0.0005 * errors.sum(1)", "0.0005 * errors.mean(1)")],
    "stale": [("    optimizer.zero_grad()  # <- stale\n", "")],
}
