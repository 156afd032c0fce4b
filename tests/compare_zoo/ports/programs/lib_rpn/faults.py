# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["torchvision"]
FAULTS = {
    "ratios": [
        ("h = size * torch", "h = size / torch"),
        ("w = size / torch", "w = size * torch"),
    ],
    "low_quality": [("    positive |= (iou == iou.amax(0)).any(1)  # <- low_quality\n", "")],
    "upsample": [('mode="nearest"', 'mode="bilinear"')],
    "beta": [
        (
            "torch.where(gap < 1 / 9, 4.5 * gap**2, gap - 1 / 18)",
            "torch.where(gap < 1, 0.5 * gap**2, gap - 0.5)",
        )
    ],
    "frozen": [
        ("    down.scale.requires_grad_(False)  # <- frozen\n", "    pass\n"),
        ("    down.shift.requires_grad_(False)  # <- frozen\n", ""),
    ],
}
