# SPDX-License-Identifier: Apache-2.0
"""Mistakes of fusing the embedding bags into one table."""

FAULTS = {
    "bag_mean": [("counts = counts / counts.sum(-1, keepdim=True)", "counts = counts / MAX_LEN")],
    "pos_weight": [("return each.mean()", "return each.sum() / weight.sum()")],
    "rowwise_mean": [("(g * g).mean(1)", "(g * g).sum(1)")],
    "decay_step": [("(1 + (self.t - 1) * 0.1)", "(1 + self.t * 0.1)")],
    "dense_log": [("numbers = (numbers + 1).log()", "numbers = numbers.log()")],
}
