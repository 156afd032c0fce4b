# SPDX-License-Identifier: Apache-2.0
"""Faults of the integer recommender."""
FAULTS = {
    "rowscale": [("w.abs().max(dim=1).values / 127", "w.abs().max().expand(len(w)) / 127")],
    "zeropoint": [("acc = acc - self.x_zero * self.row_sum", "acc = acc - self.x_zero")],
    "saturate": [("q = q.clamp(0, 255).to(torch.uint8)", "q = q.to(torch.uint8)")],
    "historypool": [("torch.rsqrt(sizes.float())", "torch.reciprocal(sizes.float())")],
    "bought": [("allowed[owner, flat] = False", "allowed[owner, 0] = False")],
}
