# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "centre": [("(torch.arange(cells) + 0.5) / cells", "torch.arange(cells) / cells")],
    "dilated": [('12, 3, padding="same", dilation=2)', '12, 3, padding="same")')],
    "normed": [("fn.normalize(fine, dim=1, eps=1e-10)", "fn.normalize(fine, dim=-1, eps=1e-10)")],
    "source": [
        ("coarse = self.e(self.d(fine)", "normal = fn.normalize(fine, dim=1, eps=1e-10)"),
        (".relu()).relu()  # <- source", " * self.gain[:, None, None]  # <- source"),
        (
            "fine = fn.normalize(fine, dim=1, eps=1e-10) * self.gain[:, None, None]  # <- normed",
            "coarse = self.e(self.d(normal).relu()).relu()",
        ),
        ("return fine, coarse", "return normal, coarse"),
    ],
    "variance": [("/ prior[:, 2:]) / 0.2]", "/ prior[:, 2:]) / 0.1]")],
    "forced": [("            best[i, favourite[i, j]] = 2.0  # <- forced\n", "")],
    "mined": [
        ("negatives.argsort(1, descending=True).argsort(1)", "negatives.argsort(1).argsort(1)")
    ],
    "divided": [("count = hit.sum()", "count = len(boxes)")],
}
