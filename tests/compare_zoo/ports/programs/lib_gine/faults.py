# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["torch_geometric"]
FAULTS = {
    "epsilon": [("GINEConv(mlp, train_eps=True)", "GINEConv(mlp)")],
    "both_ways": [
        (
            'edge_index, kinds = to_undirected(edge_index, kinds, reduce="min")',
            "kinds = kinds.clone()",
        )
    ],
    "last_relu": [("if i < DEPTH - 1:", "if i < DEPTH:")],
    "pooled": [
        ("JumpingKnowledge, global_add_pool", "JumpingKnowledge, global_mean_pool"),
        ("global_add_pool(x, data.batch)", "global_mean_pool(x, data.batch)"),
    ],
    "jump": [("self.jump(xs)", "self.jump(xs[::-1])")],
}
