# SPDX-License-Identifier: Apache-2.0
"""Mistakes people make when they port a depthwise-convolution network to channels-last code."""

FAULTS = {
    # the share of the new value taken for the share that is kept
    "bn_momentum": [("MOMENTUM, EPS = 0.9, 1e-3", "MOMENTUM, EPS = 0.1, 1e-3")],
    # running variance fed with the biased batch variance
    "bn_biased_var": [("wide = var.detach() * count / (count - 1)", "wide = var.detach()")],
    # SAME padding puts the odd row and column of stride 2 at the far end
    "same_padding": [("(0, 0, 1, 1, 1, 1)", "(0, 0, 2 - stride, 1, 2 - stride, 1)")],
    # heavy-ball momentum in place of Nesterov's
    "nesterov_plain": [("(g + self.mu * v)", "v")],
    # the smoothed mass spread over the wrong classes only
    "smoothing_off_target": [("torch.full_like(logits, amount / k)", "torch.full_like(logits, amount / (k - 1))"),
                             ("= 1 - amount + amount / k", "= 1 - amount")],
}
