# SPDX-License-Identifier: Apache-2.0
"""Faults of attention over a dense graph."""

FAULTS = {
    "edge_direction": [("sends.float().t() *", "sends.float() *")],
    "leaky_slope": [("right[:, None, :], 0.2)", "right[:, None, :])")],
    "head_concat": [("h.permute(1, 0, 2)", "h.permute(1, 2, 0)")],
    "train_rows": [("(per_node * weight).sum() / weight.sum()", "(per_node * weight).mean()")],
    "moment_correction": [("fix_v = 1 - self.b2 ** self.t", "fix_v = 1 - self.b2 ** (self.t + 1)")],
}
