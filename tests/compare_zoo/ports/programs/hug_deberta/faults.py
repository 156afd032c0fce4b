# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "buckets": [("[bucket(i - j) for j in range(LENGTH)]", "[i - j for j in range(LENGTH)]")],
    "p2c": [("k, far_q[index])", "k, far_q[index.T])")],
    "rel_norm": [("relative = self.norm_relative(self.relative)", "relative = self.relative")],
    "types": [("((place >= firsts[:, None]) & seen).long()", "torch.zeros_like(words)")],
    "eps": [("super().__init__(D, eps=1e-7)", "super().__init__(D)")],
}
