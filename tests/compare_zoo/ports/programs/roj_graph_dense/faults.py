# SPDX-License-Identifier: Apache-2.0
"""Mistakes for the pair roj_graph_dense."""

NEEDS = ["torch_geometric"]
FAULTS = {
    "edges_reversed": [("self.adj = sends.t().contiguous()", "self.adj = sends.contiguous()")],
    "leaky_default_slope": [("nn.LeakyReLU(0.2)", "nn.LeakyReLU()")],
    "degree_without_loops": [("degree = self.with_loops.sum(1)", "degree = self.adj.sum(1)")],
    "l2_without_half": [("for p in self.parameters()) / 2", "for p in self.parameters())")],
    "mask_not_rescaled": [("mask = mask / mask.mean()", "mask = mask.float()")],
}
