# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "walks": [("1 / INOUT", "INOUT"), ("1 / RETURN", "RETURN")],
    "window": [("np.arange(-AROUND, AROUND + 1)", "np.arange(-AROUND, AROUND)")],
    "power": [("seen**0.75", "seen")],
    "mapped": [
        ('self.nodes = old["in_embed.weight"]', 'self.nodes = old["out_embed.weight"]'),
        ('self.contexts = old["out_embed.weight"]', 'self.contexts = old["in_embed.weight"]'),
    ],
    "tables": [("self.contexts[:, targets]", "self.nodes[:, targets]")],
    "sign": [("[1.0] + [-1.0] * NOISE", "[1.0] + [0.0] * NOISE")],
    "summed": [("surprise.sum() / len(nodes)", "surprise.mean()")],
    "rate": [("(1 - step / 6)", "(1 - step / 3)")],
}
