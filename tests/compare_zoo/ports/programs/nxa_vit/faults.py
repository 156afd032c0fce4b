# SPDX-License-Identifier: Apache-2.0
"""Faults of the ViT on unfolded patches."""

FAULTS = {
    "patch_order": [("tiles.permute(0, 2, 3, 1, 4, 5)", "tiles.permute(0, 2, 3, 4, 5, 1)")],
    "qkv_layout": [("t.reshape(3, HEADS, HD, *t.shape[1:])",
                    "t.reshape(HEADS, 3, HD, *t.shape[1:]).transpose(0, 1)")],
    "cls_position": [("x = x + self.place", "x[:, 1:] += self.place[1:]")],
    "smoothing": [("soft = hard * (1 - SMOOTH) + SMOOTH / K",
                   "soft = hard * (1 - SMOOTH) + (1 - hard) * SMOOTH / (K - 1)")],
    "rate_decay": [("return 1 + int(block[1]) if block", "return int(block[1]) if block")],
}
