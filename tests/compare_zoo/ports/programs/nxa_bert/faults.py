# SPDX-License-Identifier: Apache-2.0
"""Faults of the classifier on transformer encoder layers."""

FAULTS = {
    "mask_sense": [("ignore = (ids == PADDING).t()", "ignore = (ids != PADDING).t()")],
    "segment_edge": [("separators.cumsum(0) - separators", "separators.cumsum(0).clamp(max=1)")],
    "activation": [("activation=F.gelu,", "activation=F.relu,")],
    "class_weights": [(".sum() / share.sum()", ".mean()")],
    "bias_correction": [("m / (v.sqrt() + 1e-6)",
                         "m / (1 - b1 ** t) / ((v / (1 - b2 ** t)).sqrt() + 1e-6)")],
}
