# SPDX-License-Identifier: Apache-2.0
"""Mistakes people make when they turn an edge-list graph network into dense matrices."""

FAULTS = {
    # rows are sources instead of targets: messages run against the edges
    "adjacency_transposed": [("where = (stop, start)", "where = (start, stop)")],
    # repeated edges collapse to a single one
    "duplicates_lost": [("accumulate=True", "accumulate=False")],
    # the row normalisation of the features is forgotten
    "features_unnormalised": [("self.words = words / words.sum(1, keepdim=True).clamp(min=1.0)", "self.words = words")],
    # L2 on every layer, although the output layer is exempt
    "decay_on_all_layers": [("(3, 0.0)]", "(3, l2)]")],
    # the masked loss divided by the number of all nodes
    "mask_mean_over_nodes": [("graph.train / graph.train.sum()", "graph.train / len(graph.train)")],
}
