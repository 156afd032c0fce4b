# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "values": [("self.among(who, who, slots)", "self.among(who, who, who)")],
    "positions": [
        ("self.to_image(who, image + places, image)", "self.to_image(who, image, image)")
    ],
    "order": [("self.after_image(slots + looked)", "slots + self.after_image(looked)")],
    "normalised": [("2 * np.pi * torch.arange(1, count + 1)", "torch.arange(1, count + 1)")],
    "giou": [("overlap / union - 1 + union / hull", "overlap / union")],
    "weighted": [("(weight * surprise).sum() / weight.sum()", "(weight * surprise).mean()")],
    "reduction": [(".sum() / objects  # <- reduction", ".mean()  # <- reduction")],
    "groups": [("torch.optim.AdamW(eyes, lr=2e-4,", "torch.optim.AdamW(eyes, lr=2e-3,")],
}
