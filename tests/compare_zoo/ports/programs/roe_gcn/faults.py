# SPDX-License-Identifier: Apache-2.0
"""Five porting mistakes for the dense GCN."""

FAULTS = {
    # the degrees are taken before the loops are added
    "degree_without_loops": [("degree = with_loops.sum(1)", "degree = incoming.sum(1)")],
    # the messages run against the edges
    "edge_direction": [("incoming = adj.t()", "incoming = adj.clone()")],
    # torch's momentum given to averages that mean it the other way round
    "bn_momentum": [("moving_var, momentum=0.9):", "moving_var, momentum=0.1):")],
    # both layers decay, not the first alone
    "decay_on_all_layers": [("self.decayed = [self.vars.w0]", "self.decayed = [self.vars.w0, self.vars.w1]")],
    # the nodes without a label count in the loss
    "loss_over_all_nodes": [("weight = mask / mask.mean()", "weight = torch.ones_like(mask)")],
}
