# SPDX-License-Identifier: Apache-2.0
"""Faults of the UNet with padded resizing."""

FAULTS = {
    "variance": [("torch.var_mean(flat, dim=1, correction=0)", "torch.var_mean(flat, dim=1)")],
    "pad_side": [("before, after = room // 2, room - room // 2",
                  "before, after = room - room // 2, room // 2")],
    "skip_order": [("torch.cat((x, raised), 1)", "torch.cat((raised, x), 1)")],
    "dice_axes": [('torch.einsum("nchw,nchw->nc", p, truth).sum(0)',
                   'torch.einsum("nchw,nchw->nc", p, truth)'),
                  ("(p + truth).sum((2, 3)).sum(0)", "(p + truth).sum((2, 3))")],
    "rmsprop_eps": [("(self.square[k].sqrt() + 1e-8)", "(self.square[k] + 1e-8).sqrt()")],
}
