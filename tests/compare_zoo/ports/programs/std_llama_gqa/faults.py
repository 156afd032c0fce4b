# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "eps": [("EPS = 1e-5", "EPS = 1e-3")],
    "base": [("theta = [500.0 **", "theta = [10000.0 **")],
    "groups": [
        ("q = q.view(B, T, KV, REP, HD)", "q = q.view(B, T, REP, KV, HD).transpose(2, 3)"),
        ("ctx = ctx.reshape(B, T, D)", "ctx = ctx.transpose(2, 3).reshape(B, T, D)"),
    ],
    "gate": [("(a * torch.sigmoid(a) * b)", "(b * torch.sigmoid(b) * a)")],
    "decay": [("w.mul_(1 - lr * wd)", "w.mul_(1 - lr * wd * (w.ndim > 1))")],
}
