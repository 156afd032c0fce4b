# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "padded": [
        (
            "x = F.pad(x, (0, 0, 1, 1, 1, 1))",
            "x = F.pad(x, (0, 0, 1, 1, 1, 1) if stride == 1 else (0, 0, 0, 1, 0, 1))",
        )
    ],
    "views": [("embed(w, views.flatten(0, 1))", "torch.cat([embed(w, view) for view in views])")],
    "base": [(".mean() * (T / BASE)", ".mean()")],
    "itself": [
        (
            '    logits = logits.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))',
            "    # all rows",
        )
    ],
    "excluded": [("enumerate(weights) if p.dim() > 1]", "enumerate(weights)]")],
}
