# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of detector."""

FAULTS = {
    "merge": [("x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)", "x.repeat(1, 1, 2, 2)")],
    "anchor_order": [("level.flatten(2).transpose(1, 2).reshape", "level.flatten(2).reshape")],
    "class_weight": [("on = -0.25 *", "on = -0.75 *"), ("off = -0.75 *", "off = -0.25 *")],
    "normalizer": [("torch.lerp(running, found.float(), 0.1)", "torch.lerp(running, found.float(), 0.9)")],
    "bias_rate": [('2.0 if name.endswith(".bias") else 1.0', '1.0 if name.endswith(".bias") else 1.0')],
}
