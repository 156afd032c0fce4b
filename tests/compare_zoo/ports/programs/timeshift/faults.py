# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "causal": [("torch.cat([nothing, x[:, :-steps]], dim=1)", "torch.roll(x, steps, dims=1)")],
    "normed": [(".sum(dim=(0, 1), keepdim=True).sqrt()", ".sum().sqrt()")],
    "dilation": [("block(x, parts, 2**number)", "block(x, parts, number + 1)")],
    "taps": [(".permute(2, 1, 0).flip(0)", ".permute(2, 1, 0)")],
    "rectified": [
        ("causal(h, second, dilation).clamp(min=0)", "causal(h, second, dilation)"),
    ],
    "history": [("right[:, SPAN - JUDGED :]", "right")],
    "clip": [("p.sub_(4.0 * scale * g)", "p.sub_(4.0 * g.clamp(-0.15, 0.15))")],
}
