# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "order": [
        (
            "[resized(self.coarse(coarse), size), self.fine(fine)]",
            "[self.fine(fine), resized(self.coarse(coarse), size)]",
        )
    ],
    "corners": [("align_corners=False", "align_corners=True")],
    "ignored": [("(each * counted).sum() / counted.sum()", "(each * counted).mean()")],
    "scale": [("scores * self.head**-0.5", "scores * (self.heads * self.head) ** -0.5")],
    "folded": [
        ("self.fold(x.flatten(3))", "self.fold(x.movedim(3, -1).flatten(3))"),
    ],
    "headrate": [('{"params": top, "lr": 1e-2}', '{"params": top}')],
}
