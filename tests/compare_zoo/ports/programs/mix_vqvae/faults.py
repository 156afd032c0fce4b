# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "count_decay": [
        ("self.count = KEEP * self.count + (1 - KEEP) * hits", "self.count = self.count + hits")
    ],
    "residual_act": [("return h + F.conv2d(r,", "return h.relu() + F.conv2d(r,")],
    "straight_through": [("passed = z - z.detach() + code", "passed = z * 0 + code")],
    "commit_weight": [
        ("CODES, BETA, KEEP, TINY = 10, 0.5,", "CODES, BETA, KEEP, TINY = 10, 0.25,")
    ],
    "commit_detach": [("(z - code).square().mean()", "(z.detach() - code).square().mean()")],
}
