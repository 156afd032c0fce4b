# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of gatv2."""

FAULTS = {
    "self_loops": [("adj = torch.eye(n, dtype=torch.bool)", "adj = torch.zeros(n, n, dtype=torch.bool)")],
    "leaky_slope": [("pair = torch.maximum(pair, 0.2 * pair)", "pair = torch.maximum(pair, 0.01 * pair)")],
    "softmax_side": [("torch.softmax(score, dim=2)", "torch.softmax(score, dim=1)")],
    "head_mean": [("heads.sum(0) / heads.shape[0] + bias", "heads.sum(0) + bias")],
    "decay_form": [("grad = t.grad + self.l2 * t", "t *= 1 - self.rate * self.l2; grad = t.grad")],
}
