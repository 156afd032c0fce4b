# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["torchvision"]
FAULTS = {
    "corners": [
        (
            "(torch.arange(large) + 0.5) * small / large - 0.5",
            "torch.arange(large) * (small - 1) / (large - 1)",
        )
    ],
    "border": [("torch.where(edge, 255,", "torch.where(edge, 0,")],
    "auxiliary": [("0.5 * pixel_loss(side, target)", "0.4 * pixel_loss(side, target)")],
    "rates": [('0.1 if name.startswith("aux") else', '0.1 if name.startswith("aux_") else')],
    "colours": [("stem.detach().flip(1)", "stem.detach()")],
}
