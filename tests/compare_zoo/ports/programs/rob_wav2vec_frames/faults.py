# SPDX-License-Identifier: Apache-2.0
"""Faults of the speech model on frames."""

NEEDS = ["transformers"]
FAULTS = {
    "norm_padded": [
        ("mean = x.sum(1, keepdim=True) / on.sum(1, keepdim=True)", "mean = x.mean(1, keepdim=True)"),
        (
            "var = ((x - mean) * on).square().sum(1, keepdim=True) / on.sum(1, keepdim=True)",
            "var = x.var(1, correction=0, keepdim=True)",
        ),
    ],
    "same_pad": [("before = POS_KERNEL // 2", "before = (POS_KERNEL - 1) // 2")],
    "ctc_by_clip": [("ctc(row, int(s), t) / len(t) for", "ctc(row, int(s), t) for")],
    "thawed": [("return x.detach()", "return x")],
    "no_correction": [
        ("rate = self.lr / (1 - b1 ** self.t)", "rate = self.lr"),
        ("((v / (1 - b2 ** self.t)).sqrt() + self.eps)", "(v.sqrt() + self.eps)"),
    ],
}
