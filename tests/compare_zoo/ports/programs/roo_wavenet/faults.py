# SPDX-License-Identifier: Apache-2.0
"""Faults for the WaveNet pair."""

FAULTS = {
    # padded on both sides as 'same' convolutions are: the model sees the future
    "same_padding": [
        ("before, after = span, 0", "before, after = span // 2, span // 2"),
    ],
    # the halves of the gated convolution in the other order
    "gate_swapped": [
        ("h = z[..., :WIDE].tanh() * z[..., WIDE:].sigmoid()", "h = z[..., :WIDE].sigmoid() * z[..., WIDE:].tanh()"),
    ],
    # the length of v is a constant for the gradient
    "norm_detached": [
        ("length = self.v.pow(2).sum(0).sqrt()", "length = self.v.detach().pow(2).sum(0).sqrt()"),
    ],
    # truncated instead of rounded to the nearest level
    "mulaw_floor": [
        ("torch.floor((squeezed + 1) * 0.5 * top + 0.5)", "torch.floor((squeezed + 1) * 0.5 * top)"),
    ],
    # the mean of squares starts at one, as in TensorFlow 1
    "rms_ones": [
        ("self.slots = [torch.zeros_like(p.data) for p in params]", "self.slots = [torch.ones_like(p.data) for p in params]"),
    ],
}
