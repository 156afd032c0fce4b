# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "order": [('_proj.{kind}"] for c in "qkv"]', '_proj.{kind}"] for c in "kvq"]')],
    "silence": [("frames.masked_fill(silent[..., None], 0.0)", "frames")],
    "weight_norm": [("self.length / size", "self.length")],
    "frozen": [(' if not name.startswith("ear.")]', "]")],
    "reduction": [("(each / sizes).mean()", "each.sum() / sizes.sum()")],
}
