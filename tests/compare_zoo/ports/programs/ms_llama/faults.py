# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "mindspore"
FAULTS = {
    "rms": [("def __init__(self, eps=1e-5):", "def __init__(self, eps=1e-6):")],
    "rope": [
        ("x1, x2 = mint.chunk(x, 2, dim=-1)", "x1, x2 = x[..., 0::2], x[..., 1::2]"),
        (
            "mint.cat((mint.neg(x2), x1), dim=-1)",
            "ops.stack((mint.neg(x2), x1), axis=-1).reshape(x.shape)",
        ),
        ("np.concatenate((angle, angle), axis=-1)", "np.repeat(angle, 2, axis=-1)"),
    ],
    "groups": [
        (
            "mint.broadcast_to(x.unsqueeze(2), (b, KV_HEADS, HEADS // KV_HEADS, t, HEAD))",
            "mint.tile(x, (1, HEADS // KV_HEADS, 1, 1))",
        )
    ],
    "swiglu": [("ops.silu(gate) * up", "gate * ops.silu(up)")],
    "decay": [
        ("beta1=0.9, beta2=0.95)", "beta1=0.9, beta2=0.95, weight_decay=0.1)"),
        ("    shrink()  # <- decay\n", ""),
    ],
}
