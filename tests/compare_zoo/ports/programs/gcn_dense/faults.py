# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

OF = "gcn"
FAULTS = {
    "normalised": [("adjacency.sum(1)", "(adjacency.sum(1) + 1)")],
    "direction": [("adjacency[col, row]", "adjacency[row, col]")],
    "slope": [("F.leaky_relu(alpha, 0.2)", "F.leaky_relu(alpha)")],
    "heads": [("out.mean(dim=1)", "out.sum(dim=1)")],
    "masked": [("[train_mask], y[train_mask])", "[~train_mask], y[~train_mask])")],
    "decay": [("weight_decay=5e-4", "weight_decay=5e-3")],
}
