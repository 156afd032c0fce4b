# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "decay": [
        (
            "torch.lerp(value.detach(), shadow, self.momentum)",
            "torch.lerp(shadow, value.detach(), self.momentum)",
        )
    ],
    "consistency": [
        ("((probabilities - target) ** 2).mean()", "((probabilities - target) ** 2).sum(1).mean()")
    ],
    "weight": [("+ 3 * consistency", "+ 0.3 * consistency")],
    "early": [
        (
            "    sgd.step()  # <- attached\n    mean.update()",
            "    mean.update()\n    sgd.step()  # <- attached",
        )
    ],
    "attached": [("momentum=0.9)\nrng", "momentum=0.9, nesterov=True)\nrng")],
}
