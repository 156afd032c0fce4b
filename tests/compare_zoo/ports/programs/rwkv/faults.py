# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "shift": [("    before[:, 0] = 0.0  # <- shift\n", "")],
    "mix": [("before + ratios * (x - before)", "x + ratios * (before - x)")],
    "distance": [("(apart - 1) * -torch", "apart * -torch")],
    "bonus": [
        (
            "torch.where(apart == 0, self.bonus, past)",
            "torch.where(apart == 0, torch.exp(self.bonus), past)",
        )
    ],
    "square": [(".clamp(min=0) ** 2", ".clamp(min=0)")],
    "first": [("self.layers(self.first(x))", "self.layers(x)")],
    "order": [("torch.stack([key, value, receptance])", "torch.stack([receptance, key, value])")],
    "correction": [("torch.sqrt(square / (1 - slow**step))", "torch.sqrt(square)")],
}
