# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "eps": [("torch.rsqrt(var + 1e-3)", "torch.rsqrt(var + 1e-5)")],
    "padding": [
        (
            "low, high = kernel // 2, kernel // 2",
            "low, high = (kernel - stride) // 2, (kernel - stride + 1) // 2",
        )
    ],
    "kernel": [("depth[:, 0].permute(1, 2, 0)", "depth[:, 0].permute(2, 1, 0)")],
    "squeeze": [("F.silu(pooled @ ", "F.relu(pooled @ ")],
    "residual": [("return h + x if adds else h", "return h")],
    "pixels": [
        ("[0.485, 0.456, 0.406]", "[0.5, 0.5, 0.5]"),
        ("[0.229, 0.224, 0.225]", "[0.5, 0.5, 0.5]"),
    ],
    "smoothing": [("sure + smoothing / NUM_CLASSES", "sure + smoothing / (NUM_CLASSES - 1)")],
    "root": [("(square.sqrt() + 1e-3)", "(square + 1e-3).sqrt()")],
}
