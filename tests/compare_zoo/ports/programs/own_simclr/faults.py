# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "flattened": [
        ("value.view(20, 16, 3, 3).permute(2, 3, 1, 0).reshape(-1, 20)", "value.t()"),
    ],
    "padded": [
        (
            "(0, 0, 1, 1, 1, 1)",
            "(0, 0, 1, 1, 1, 1) if stride == 1 else (0, 0, 0, 1, 0, 1)",
        )
    ],
    "variance": [("var * count / (count - 1)", "var")],
    "itself": [("everything - everything.diagonal().diag()", "everything")],
    "decay": [("if w.dim() > 1:", "if w.dim() > 0:")],
}
