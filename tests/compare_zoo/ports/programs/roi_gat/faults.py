# SPDX-License-Identifier: Apache-2.0
"""Faults for the dense graph attention port."""

FAULTS = {
    "self_loops": [("adj = sends.t() | torch.eye(N, dtype=torch.bool)", "adj = sends.t()")],
    "softmax_axis": [("torch.softmax(logits, dim=2)", "torch.softmax(logits, dim=1)")],
    "bn_momentum": [("var, keep=0.9, eps", "var, keep=0.1, eps")],
    "train_mask": [("(nll * weight).sum() / weight.sum()", "(nll * weight).mean()")],
    "l2_scope": [("for p in early:", "for p in early + late:")],
}
