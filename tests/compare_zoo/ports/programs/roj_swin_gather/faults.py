# SPDX-License-Identifier: Apache-2.0
"""Mistakes for the pair roj_swin_gather."""

NEEDS = ["torchvision"]
FAULTS = {
    "no_shift_mask": [
        (
            'score = score.masked_fill(~t.allowed[:, None], float("-inf"))  # <- no_shift_mask\n',
            "score = score.contiguous()  # <- no_shift_mask\n",
        ),
    ],
    "merge_order": [("permute(0, 1, 3, 4, 2, 5)", "permute(0, 1, 3, 2, 4, 5)")],
    "weighted_mean_by_count": [("(nll * w).sum() / w.sum()", "(nll * w).mean()")],
    "decoupled_decay": [
        ("g = g + self.decay * p", "p.mul_(1 - self.lr * self.decay)"),
    ],
    "patch_projection_trained": [
        ("self.patch_w.detach().flatten(1), self.patch_b.detach())", "self.patch_w.flatten(1), self.patch_b)"),
    ],
}
