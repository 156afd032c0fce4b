# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of graph."""

FAULTS = {
    "direction": [("incoming = adj.T", "incoming = adj")],
    "degree": [("d = a.sum(dim=1)", "d = a.sum(dim=0)")],
    "row_length": [("h.norm(dim=1, keepdim=True)", "h.norm(dim=0, keepdim=True)")],
    "train_rows": [("weight = weight / weight.mean()", "weight = weight / 1.0")],
    "decay_first": [('if k.startswith("sage")', 'if k.endswith("weight")')],
}
