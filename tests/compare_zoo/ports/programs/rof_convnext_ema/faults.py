# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the port of the ConvNeXt training."""

NEEDS = ["transformers"]
FAULTS = {
    "biased_variance": [("x, dim=1, keepdim=True, correction=0)", "x, dim=1, keepdim=True)")],
    "gelu_form": [("nn.GELU(),", 'nn.GELU(approximate="tanh"),')],
    "smoothing": [("rest = logp.mean(1)", "rest = (logp.sum(1) - hit) / (logp.shape[1] - 1)")],
    "nesterov": [("(g + self.mu * velocity))", "velocity)")],
    "teacher_start": [("ema.update_parameters(net)  # the first call only copies  # <- teacher_start\n", "")],
}
