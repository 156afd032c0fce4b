# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "decays": [("torch.exp2(-5.0 - torch", "torch.exp2(-4.0 - torch")],
    "angles": [("linspace(0, 1, HEAD // 2)", "arange(0, HEAD, 2) / HEAD")],
    "pairs": [("return per_head.transpose(1, 2).reshape(WIDTH, WIDTH)", "return weight")],
    "present": [
        ("query, state)", "query, state - fresh)"),
    ],
    "perhead": [
        ("y = rms(y).reshape(batch, length, WIDTH)", "y = rms(y.reshape(batch, length, WIDTH))")
    ],
    "gate": [("gate * torch.sigmoid(gate)", "torch.sigmoid(gate)")],
    "warmup": [("min(1.0, t / 4)", "min(1.0, (t - 1) / 4)")],
}
