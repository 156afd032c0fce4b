# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "bias_twice": [
        ("flatten(2) @ out_w.t())", "flatten(2) @ out_w.t() + bias)"),
        ("return sum(outs) + bias", "return sum(outs)"),
    ],
    "mean_of_means": [("embeddings[0], y, 1 / count)", "embeddings[0], y, 0.5 / (y >= 0).sum())")],
    "chunk_gradient": [("            d *= valid[:, None] * scale", "            d *= scale")],
    "clip_each": [
        ("w.grad * factor", "w.grad * (0.5 / (w.grad.norm() + 1e-6)).clamp(max=1)"),
    ],
    "warmup": [("lr = LR * (step + 1) / WARM", "lr = LR * step / WARM")],
    "decay": [("            if w.ndim >= 2:", "            if w.ndim >= 1:")],
}
