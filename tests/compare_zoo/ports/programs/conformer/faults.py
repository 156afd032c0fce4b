# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "distance": [("steps[None, :] - steps[:, None]", "steps[:, None] - steps[None, :]")],
    "second": [
        ("q + self.position_bias, places", "q + self.content_bias, places"),
        (
            "torch.autograd.grad(loss, weights)",
            "torch.autograd.grad(loss, weights, materialize_grads=True)",
        ),
    ],
    "centred": [("(0, 0, TAPS // 2, TAPS // 2)", "(0, 0, TAPS - 1, 0)")],
    "statistics": [
        ("mean = x.mean((0, 1))", "mean = x.mean(1, keepdim=True)"),
        ("x.var((0, 1), unbiased=False)", "x.var(1, keepdim=True, unbiased=False)"),
    ],
    "step": [("self.after(x) / 2", "self.after(x)")],
    "repeats": [("(labels[2:] != 0) & (labels[2:] != labels[:-2])", "labels[2:] != 0")],
    "lengths": [("ctc(scores, text) / len(text)", "ctc(scores, text)")],
    "spread": [("sum(1, keepdim=True) / 23", "mean(1, keepdim=True)")],
}
