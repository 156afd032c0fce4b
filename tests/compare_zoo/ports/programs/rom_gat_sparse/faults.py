# SPDX-License-Identifier: Apache-2.0
"""Faults of the edge-list graph port."""

FAULTS = {
    # degrees counted before the loops are added
    "degree_no_loops": [("torch.bincount(self.dst, minlength=nodes)", "torch.bincount(dst[other], minlength=nodes).clamp(min=1)")],
    # torch's default slope is 0.01
    "leaky_default": [("leaky_relu(score, 0.2)", "leaky_relu(score)")],
    "mask_ignored": [("return (per_node * mask).sum() / mask.sum()", "return per_node.mean()")],
    "l2_everywhere": [("decayed = list(net.first.parameters())", "decayed = list(net.parameters())")],
    # the running variance without Bessel's correction
    "running_biased": [("(1 - self.keep) * sigma2 * n / (n - 1)", "(1 - self.keep) * sigma2")],
}
