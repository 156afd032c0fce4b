# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the port of the T5 training."""

NEEDS = ["transformers"]
FAULTS = {
    "one_way_buckets": [('p["decoder.bias"], n, two_way=False)', 'p["decoder.bias"], n, two_way=True)')],
    "cross_mask": [('p[s + "norm1"]), memory, blocked)', 'p[s + "norm1"]), memory, 0.0)')],
    "logit_scale": [("(states * D**-0.5) @", "states @")],
    "label_pad": [("target.flatten(), ignore_index=0)", "target.flatten())")],
    "update_clip": [("(size / limit).clamp(min=1.0)", "size.clamp(min=1.0)")],
}
