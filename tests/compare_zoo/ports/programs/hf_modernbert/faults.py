# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "firstnorm": [
        (
            'y = norm(x, w[f"layers.{n}.norm1"]) if n else x',
            'y = norm(x, w[f"layers.{n}.norm1"] if n else torch.ones(WIDTH))',
        )
    ],
    "window": [("<= LOCAL // 2", "<= LOCAL")],
    "theta": [("theta = THETA_GLOBAL if is_global else THETA_LOCAL", "theta = THETA_GLOBAL")],
    "gate": [("(F.gelu(value) * gate)", "(value * F.gelu(gate))")],
    "softmax": [
        ("weights = scores.softmax(-1)", "weights = scores.softmax(-1).bfloat16().float()")
    ],
    "betas": [("betas=(0.9, 0.98), ", "")],
}
