# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "deviation": [("-5.0 + 3.5 * (torch.tanh(raw) + 1.0)", "torch.clamp(raw, -5.0, 2.0)")],
    "squash": [
        (
            " - torch.log(SCALE * (1.0 - squashed**2) + 1e-6)",
            " - torch.log(1.0 - squashed**2 + 1e-6)",
        )
    ],
    "twins": [("actions).amin(0)  # <- twins", "actions).mean(0)  # <- twins")],
    "entropy": [("following - temperature * log_prob", "following + temperature * log_prob")],
    "terminal": [('(1.0 - batch["done"])', 'batch["done"]')],
    "half": [("(errors**2).mean(-1).sum()", "0.5 * (errors**2).mean(-1).sum()")],
    "goal": [("target_entropy=-3.0", "target_entropy=3.0")],
    "polyak": [
        (
            "torch.lerp(targets[n], twins.params[n], STEP_SIZE)",
            "torch.lerp(twins.params[n], targets[n], STEP_SIZE)",
        )
    ],
}
