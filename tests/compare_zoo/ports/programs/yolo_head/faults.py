# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "epsilon": [("mean((0, 1, 2)) + 1e-3)", "mean((0, 1, 2)) + 1e-5)")],
    "grid": [
        (
            "rows, columns = steps[:, None], steps[None, :]",
            "columns, rows = steps[:, None], steps[None, :]",
        )
    ],
    "joined": [("torch.cat([up, middle], dim=-1)", "torch.cat([middle, up], dim=-1)")],
    "smallest": [("min(around)[1]", "around[0][1]")],
    "enclosing": [("iou, iou - (1 - union / hull)", "iou, iou - (1 - union / hull) ** 2")],
    "foreground": [
        (
            "cross_entropy(objectness, is_object).sum()",
            "cross_entropy(objectness, is_object).mean()",
        )
    ],
    "quality": [(" * iou.detach()[:, None]", "")],
    "nesterov": [("0.02 * (g + 0.9 * speed[name])", "0.02 * speed[name]")],
}
