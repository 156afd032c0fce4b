# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "direction": [("adjacency[b].append(a)", "adjacency[a].append(b)")],
    "lonely": [("real.sum(1).clamp(min=1)", "real.sum(1) + 1")],
    "crossed": [
        (
            '(theirs[f"convs.{n}.lin_l.weight"], theirs[f"convs.{n}.lin_r.weight"])',
            '(theirs[f"convs.{n}.lin_r.weight"], theirs[f"convs.{n}.lin_l.weight"])',
        )
    ],
    "leaked": [("log_p[train, labels[train]]", "log_p[torch.arange(24), labels]")],
    "annealed": [("math.pi * step / 4", "math.pi * step / 3")],
}
