# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "causal": [
        (
            "torch.cat([x.new_zeros(x.shape[0], reach, x.shape[2]), x], dim=1)",
            "nn.functional.pad(x, (0, 0, reach // 2, reach // 2))",
        )
    ],
    "last": [("final = x[:, -1]", "final = x.mean(1)")],
    "average": [("lerp_(p, 1 - DECAY)", "lerp_(p, DECAY)")],
    "schedule": [("= rate(step)", "= rate(step + 1)")],
    "nesterov": [(", nesterov=True", "")],
    "clip": [("clip_grad_norm_(net.parameters(), 0.5)", "clip_grad_value_(net.parameters(), 0.5)")],
}
