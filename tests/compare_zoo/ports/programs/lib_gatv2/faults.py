# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["torch_geometric"]
FAULTS = {
    "direction": [("source, target = there", "target, source = there")],
    "loops": [("    edges[:, own, own] = edges.sum(2) / degree  # <- loops\n", "")],
    "pooled": [('self.gate(x).masked_fill(~real[..., None], float("-inf"))', "self.gate(x)")],
    "mean_scale": [("x - mean * self.centering", "x - mean")],
    "coupled": [("torch.optim.Adam(", "torch.optim.AdamW(")],
}
