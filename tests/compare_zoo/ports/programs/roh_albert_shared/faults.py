# SPDX-License-Identifier: Apache-2.0
"""Mistakes for the ALBERT pair."""

NEEDS = ["transformers"]
FAULTS = {
    "segments_lost": [("self.pos[: ids.shape[1]] + self.seg(segments)", "self.pos[: ids.shape[1]] + self.seg(torch.zeros_like(segments))")],
    "padding_attended": [("self.block(x, src_key_padding_mask=hidden_keys)", "self.block(x)")],
    "weights_averaged_plainly": [("(nll * weight).sum() / weight.sum()", "(nll * weight).mean()")],
    "grads_overwritten": [("[s + g / 2 for s, g in", "[g / 2 for s, g in")],
    "heavy_ball": [("self.lr * (g + self.mu * v)", "self.lr * v")],
}
